"""Stage download: get the corpus, check it, and write its splits as parallel files.

Reads   one of: corpora/<corpus>.json and the files that it names; your files in corpus_path; nothing, for the built-in
        corpora toy and copy. work/downloads: files that were fetched before
Writes  data/raw/{train,valid,<test set>}.{src,tgt}; train.files.json: if train comes from several files, the name of
        each on the source side and its number of lines, else nothing; for toy also test.labels: the grammar's
        phenomena in each test pair
Params  corpus, corpus_path, source, target, test_sets
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from pipeline.workflow.git import remark_if_uncommitted
from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, bar, project_root, run
from transformer.corpora.copy_task import copy_corpus
from transformer.corpora.fetching import fetch_all
from transformer.corpora.manifest import Manifest, NoChecksum
from transformer.corpora.parallel_text import ParallelText, user_splits
from transformer.corpora.toy.texts import toy_texts
from transformer.files import whole_folder, write_json, write_lines
from transformer.text.words import splitter_of

MOST = 12  # training files that are listed with their pairs


def main() -> None:
    paths = arguments(__doc__, manifests="corpora", raw="data/raw")
    params = Params.load(paths.params)
    for language in (params.source, params.target):
        splitter_of(language)  # raises ValueError for what is no language code, before the download
    texts, labels = texts_of(params, paths.manifests)
    counts = {}
    with whole_folder(paths.raw) as folder:
        for split, parts in texts.items():
            counts[split] = write_split(folder, split, parts)
        if labels:
            write_lines(folder / "test.labels", labels)
    print(", ".join(f"{count:,} {split}" for split, count in counts.items()), "pairs")


def texts_of(params: Params, manifests: Path) -> tuple[dict[str, list[ParallelText]], list[str]]:
    """The texts of each split, and the labels of the test pairs if there are some."""
    splits, languages = ("train", "valid", *params.test_sets.split()), (params.source, params.target)
    if params.source == params.target and params.corpus != "copy":
        raise ValueError(f"source and target are both {params.source}. Set one of them to another language.")
    if params.corpus in ("toy", "copy"):
        texts, labels = toy_texts(*languages) if params.corpus == "toy" else (copy_corpus(), [])
        if params.test_sets.split() != ["test"]:
            raise ValueError(f"corpus={params.corpus} has one test set, test; set test_sets=test.")
        return texts, labels
    if params.corpus == "files":
        folder = Path(params.corpus_path)
        texts = user_splits(folder, splits, *languages)
        names = {name for parts in texts.values() for part in parts for name in part.names}
        remark_if_uncommitted(folder, sorted(Path(name).name for name in names))
        return texts, []
    manifest = Manifest.load(manifests / f"{params.corpus}.json")
    try:
        downloads = manifest.downloads(splits, *languages)
    except NoChecksum as error:
        raise ValueError(
            f"{error} `python -m pipeline manifest {params.corpus}` fetches what has none and writes its checksum, for "
            "you to look at and commit."
        ) from None
    with bar(sum(download.size or 0 for download in downloads.values()), "B", f"download {params.corpus}") as progress:
        places = fetch_all(downloads, project_root() / "work/downloads", progress.update)
    manifest.check(places)
    return {split: manifest.texts(split, *languages, places) for split in splits}, []


def write_split(folder: Path, split: str, parts: list[ParallelText]) -> int:
    """Write a split. Returns the number of its pairs."""
    sizes: list[int] = []

    def pairs() -> Iterator[tuple[str, str]]:
        for part in parts:
            count = 0
            for count, pair in enumerate(part.pairs(), start=1):  # noqa: B007 (the last number is the result)
                yield pair
            sizes.append(count)

    with ExitStack() as stack:
        progress = stack.enter_context(bar(0, "pair", f"read {split}"))
        files = [
            stack.enter_context(open(folder / f"{split}.{side}", "w", encoding="utf-8", newline="\n"))
            for side in ("src", "tgt")
        ]
        for number, pair in enumerate(pairs(), start=1):
            for file, line in zip(files, pair, strict=True):
                file.write(line + "\n")
            if number % 10_000 == 0:
                progress.update(10_000)
    if not sum(sizes):
        raise ValueError(f"{parts[0].names[0]} is empty. The {split} set needs at least one pair of lines.")
    if split == "train":
        names = (Path(part.names[0]).name for part in parts)
        files = list(zip(names, sizes, strict=True)) if len(parts) > 1 else []
        write_json(folder / "train.files.json", files)
        if files:
            more = f" and {len(files) - MOST:,} more files" if len(files) > MOST else ""
            print(f"train: {', '.join(f'{name} {size:,}' for name, size in files[:MOST])} pairs{more}")
    return sum(sizes)


if __name__ == "__main__":
    run(main)
