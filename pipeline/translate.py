"""Stage translate: translate the sources of valid and of the test sets with the averaged model, by beam search.

Reads   data/averaged; data/raw: the sources
Writes  data/hypotheses: valid.hyp and <test set>.hyp, one detokenised translation per line, made of the line as it is,
        also if it has several sentences; remarks.json: for each split, what may be wrong with its translations;
        forms.json: the translations of the first lines of the first test set as people type them (text/forms.py)
Params  test_sets, engine, beam_size, length_penalty, extra_length
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from pipeline.workflow.gpus import hold_gpus
from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, bar, require, run
from transformer.decoding.config import SearchConfig
from transformer.files import chunks, read_lines, whole_folder, write_json, write_lines
from transformer.inference.remarks import RemarkCounts
from transformer.inference.translation import SentencePair
from transformer.inference.translator import Translator
from transformer.text.forms import LINES, forms_of

CHUNK_LINES = 10_000  # translated at a time, sorted by length


def main() -> None:
    paths = arguments(__doc__, model="data/averaged", raw="data/raw", hypotheses="data/hypotheses")
    params = Params.load(paths.params)
    splits = ["valid", *params.test_sets.split()]
    require(paths.model, *(paths.raw / f"{split}.src" for split in splits))
    translator = Translator.load(paths.model, engine=params.engine)
    config = params.take(SearchConfig)
    remarks: dict[str, RemarkCounts] = {}
    with whole_folder(paths.hypotheses) as folder:
        for split in splits:
            source, remarks[split] = paths.raw / f"{split}.src", RemarkCounts()
            with bar(sum(1 for _ in read_lines(source)), "sentence", f"translate {split}") as progress:
                pairs = (
                    pair
                    for lines in chunks(read_lines(source), CHUNK_LINES)
                    for (pair,) in translator.translate_sentences(lines, False, progress.update, config=config)
                )
                count = write_lines(folder / f"{split}.hyp", count_remarks(pairs, remarks[split]))
            print(f"{count:,} {split} sentences translated")
            for line in remarks[split].describe():
                print(f"{split}: {line}")
        write_json(folder / "remarks.json", {split: counts.contents() for split, counts in remarks.items()})
        forms = forms_of([*islice(read_lines(paths.raw / f"{splits[1]}.src"), LINES)])
        translated = {name: translator.translate(lines, False, config=config) for name, lines in forms.items()}
        write_json(folder / "forms.json", translated)


def count_remarks(pairs: Iterable[SentencePair], counts: RemarkCounts) -> Iterator[str]:
    """The translations of pairs. What may be wrong with them is counted."""
    for number, pair in enumerate(pairs, start=1):
        counts.add(number, [pair])
        yield pair.translation.text


if __name__ == "__main__":
    run(hold_gpus(1, wait=False)(main))
