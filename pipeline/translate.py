"""Stage translate: translate the sources of valid and of the test sets with the averaged model, by beam search.

Reads   data/model; data/raw: the sources
Writes  data/hypotheses: valid.hyp and <test set>.hyp, one detokenised translation per line
Params  test_sets, engine, beam_size, length_penalty, extra_length, replace_unk
"""

from dataclasses import asdict

from pipeline.locks import prefer_free_gpu
from pipeline.params import Params
from pipeline.stage import arguments, bar, require, run
from transformer.decoding.config import SearchConfig
from transformer.files import chunks, read_lines, whole_folder, write_lines
from transformer.inference.translator import Translator

CHUNK_LINES = 10_000  # translated at a time, sorted by length


def main() -> None:
    paths = arguments(__doc__, model="data/model", raw="data/raw", hypotheses="data/hypotheses")
    params = Params.load(paths.params)
    splits = ["valid", *params.test_sets.split()]
    require(paths.model, *(paths.raw / f"{split}.src" for split in splits))
    translator = Translator.load(paths.model, engine=params.engine)
    settings = asdict(params.take(SearchConfig))
    with whole_folder(paths.hypotheses) as folder:
        for split in splits:
            source = paths.raw / f"{split}.src"
            with bar(sum(1 for _ in read_lines(source)), "sentence", f"translate {split}") as progress:
                translations = (
                    line
                    for lines in chunks(read_lines(source), CHUNK_LINES)
                    for line in translator.translate(lines, **settings, progress=progress.update)
                )
                count = write_lines(folder / f"{split}.hyp", translations)
            print(f"{count:,} {split} sentences translated")


if __name__ == "__main__":
    run(prefer_free_gpu()(main))
