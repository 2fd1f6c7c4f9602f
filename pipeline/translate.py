"""Stage translate: translate the validation and test sources with the averaged model, by beam search.

Reads   data/model, or data/ct2 with engine ctranslate2; data/raw/{valid,test}.src
Writes  data/valid.hyp, data/test.hyp: one detokenised translation per line
Params  engine, beam_size, length_penalty, extra_length, replace_unk
"""

from dataclasses import asdict

from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, bar, require, run
from transformer.decoding.config import SearchConfig
from transformer.files import chunks, read_lines, write_lines
from transformer.inference.translator import Translator

CHUNK_LINES = 10_000  # translated at a time, sorted by length


def main() -> None:
    paths = arguments(
        __doc__, model="data/model", ct2="data/ct2", raw="data/raw", valid="data/valid.hyp", test="data/test.hyp"
    )
    params = Params.load(paths.params)
    folder = paths.model if params.engine == "torch" else paths.ct2 / "float32"
    require(folder, paths.raw)
    translator = Translator.load(folder)
    settings = asdict(params.take(SearchConfig))
    for split, path in (("valid", paths.valid), ("test", paths.test)):
        source = paths.raw / f"{split}.src"
        with bar(sum(1 for _ in read_lines(source)), "sentence", f"translate {split}") as progress:
            translations = (
                line
                for lines in chunks(read_lines(source), CHUNK_LINES)
                for line in translator.translate(lines, **settings, progress=progress.update)
            )
            count = write_lines(path, translations)
        print(f"{count:,} {split} sentences translated")


if __name__ == "__main__":
    run(main)
