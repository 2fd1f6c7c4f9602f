"""Stage download: get the corpus, check it, and write it as six files.

Reads   one of: corpora/<corpus>.lock and the files that it names; your files {train,valid,test}.{source,target} in
        corpus_path; nothing, for the built-in corpora toy and copy
Writes  data/raw/{train,valid,test}.{src,tgt}; for toy also test.labels, the phenomena of each test pair
Params  corpus, corpus_path, source, target
"""

import tempfile
from pathlib import Path

from pipeline.shared.git import remark_if_uncommitted
from pipeline.shared.params import Params
from pipeline.shared.stage import arguments, bar, run
from transformer.corpora.copy_task import copy_corpus
from transformer.corpora.parallel_files import SIDES, SPLITS, Corpus, locked_corpus, user_corpus
from transformer.corpora.toy.grammar import toy_corpus
from transformer.files import whole_folder, write_lines
from transformer.text.words import tokenizer

SUFFIX = {"source": "src", "target": "tgt"}


def main() -> None:
    paths = arguments(__doc__, locks="corpora", raw="data/raw")
    params = Params.load(paths.params)
    for language in (params.source, params.target):
        tokenizer(language)  # raises ValueError for an unknown language before the download
    labels = None
    if params.corpus == "toy":
        corpus, labels = toy(params.source, params.target)
    elif params.corpus == "copy":
        corpus = copy_corpus()
    elif params.corpus == "files":
        corpus = user_corpus(Path(params.corpus_path), params.source, params.target)
        languages = (params.source, params.target)
        files = [f"{split}.{language}" for split in SPLITS for language in languages]
        remark_if_uncommitted(Path(params.corpus_path), files)
    else:
        lock = paths.locks / f"{params.corpus}.lock"
        with tempfile.TemporaryDirectory() as folder:
            corpus = locked_corpus(
                lock, params.source, params.target, Path(folder), lambda name, size: bar(size, "B", name).update
            )
    with whole_folder(paths.raw) as folder:
        for split in SPLITS:
            for side in SIDES:
                write_lines(folder / f"{split}.{SUFFIX[side]}", corpus[split, side])
        if labels:
            write_lines(folder / "test.labels", labels)
    print(", ".join(f"{len(corpus[split, 'source']):,} {split}" for split in SPLITS), "pairs")


def toy(source: str, target: str) -> tuple[Corpus, list[str]]:
    """The built-in corpus from `source` to `target`, and the labels of each test pair."""
    if {source, target} != {"de", "en"}:
        raise ValueError(f"corpus=toy has German and English, not {source}-{target}; set source=de and target=en")
    pairs = toy_corpus()
    corpus: Corpus = {}
    for split in SPLITS:
        german, english = [pair.source for pair in pairs[split]], [pair.target for pair in pairs[split]]
        corpus[split, "source"], corpus[split, "target"] = (german, english) if source == "de" else (english, german)
    seen = {pair.frame for pair in pairs["train"]}
    labels = [
        " ".join(pair.phenomena + (("unseen_frame",) if pair.frame not in seen else ())) for pair in pairs["test"]
    ]
    return corpus, labels


if __name__ == "__main__":
    run(main)
