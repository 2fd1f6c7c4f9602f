"""Stage export: convert the model for CTranslate2, in two precisions.

Reads   data/model
Writes  data/ct2/float32, data/ct2/int8: self-contained model folders for programs without torch
Params  none
"""

from pipeline.stage import arguments, require, run
from transformer.inference.ctranslate2_export import export

PRECISIONS = ("float32", "int8")


def main() -> None:
    paths = arguments(__doc__, model="data/model", ct2="data/ct2")
    require(paths.model)
    for precision in PRECISIONS:
        export(paths.model, paths.ct2 / precision, precision)
        size = sum(file.stat().st_size for file in (paths.ct2 / precision).iterdir())
        print(f"{paths.ct2 / precision}: {size / 1e6:,.1f} MB")


if __name__ == "__main__":
    run(main)
