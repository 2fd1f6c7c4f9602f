"""Stage export: convert the model for CTranslate2 in int8, the smallest folder to ship.

Reads   data/model
Writes  data/ct2/int8: a self-contained model folder for programs without torch
Params  none
"""

from pipeline.workflow.stage import arguments, require, run
from transformer.inference.ctranslate2_export import export


def main() -> None:
    paths = arguments(__doc__, model="data/model", ct2="data/ct2")
    require(paths.model)
    target = paths.ct2 / "int8"
    export(paths.model, target, "int8")
    print(f"{target}: {sum(file.stat().st_size for file in target.iterdir()) / 1e6:,.1f} MB")


if __name__ == "__main__":
    run(main)
