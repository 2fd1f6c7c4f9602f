"""Stage download: get the corpus, check it, and write its splits as parallel files.

Reads   corpus: a folder of text, or a manifest (a .json) and the files that it names. work/downloads: files that were
        fetched before
Writes  data/raw/{train,valid,<test set>}.{src,tgt}; train.files.json: if train comes from several files, the name of
        each on the source side and its number of lines, else nothing; <test set>.labels: what kind of sentence each
        pair of a test set is, if the folder has such a file
Params  corpus, source, target, test_sets
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from pipeline.workflow.params import Params
from pipeline.workflow.stage import arguments, bar, project_root, run
from transformer.corpora.fetching import fetch_all
from transformer.corpora.manifest import Manifest, NoChecksum
from transformer.corpora.parallel_text import ParallelText, user_splits
from transformer.corpora.text_files import lines_of
from transformer.files import Mistake, whole_folder, write_json, write_lines
from transformer.text.words import splitter_of

MOST_LISTED = 12  # training files that are listed with their pairs


def main() -> None:
    paths = arguments(__doc__, raw="data/raw")
    params = Params.load(paths.params)
    languages = params.source, params.target
    for language in languages:
        splitter_of(language)  # raises Mistake for what is no language code, before the download
    if params.source == params.target:
        raise Mistake(f"source and target are both {params.source}. Set one of them to another language.")
    corpus, test_sets = Path(params.corpus), params.test_sets.split()
    texts = texts_of(corpus, ["train", "valid", *test_sets], *languages)
    counts = {}
    with whole_folder(paths.raw) as folder:
        for split, parts in texts.items():
            counts[split] = write_split(folder, split, parts)
        for split in test_sets:
            if (labels := corpus / f"{split}.labels").exists():
                write_labels(folder, labels, counts[split])
    print(", ".join(f"{count:,} {split}" for split, count in counts.items()), "pairs")


def texts_of(corpus: Path, splits: list[str], source: str, target: str) -> dict[str, list[ParallelText]]:
    """The texts of each split of a corpus, a folder or a manifest."""
    if corpus.is_dir():
        return user_splits(corpus, splits, source, target)
    if corpus.suffix != ".json":
        raise Mistake(
            f"corpus={corpus} is neither a folder with the files of train, valid and the test sets, nor a manifest "
            "such as corpora/multi30k.json. The built-in corpus is corpora/toy."
        )
    manifest = Manifest.load(corpus)
    try:
        downloads = manifest.downloads(splits, source, target)
    except NoChecksum as error:
        raise Mistake(
            f"{error} `python -m pipeline manifest {corpus}` fetches what has none and writes its checksum, for you to "
            "look at and commit."
        ) from None
    with bar(sum(download.size or 0 for download in downloads.values()), "B", f"download {corpus}") as progress:
        paths_of_files = fetch_all(downloads, project_root() / "work/downloads", progress.update)
    return {split: manifest.texts(split, source, target, paths_of_files) for split in splits}


def write_labels(folder: Path, labels: Path, count: int) -> None:
    """Copy the labels of a test set of `count` pairs. Raises Mistake for another number, or an odd character."""
    lines = list(lines_of(labels))
    if len(lines) != count:
        raise Mistake(f"{labels} has {len(lines)} lines, and its test set {count} pairs. Write a line for each pair.")
    for number, word in ((number, word) for number, line in enumerate(lines, 1) for word in line.split()):
        if not re.fullmatch(r"[\w.-]+", word):
            raise Mistake(f"{labels}:{number}: {word!r} is no label. Write letters, digits, _, - and . only.")
    write_lines(folder / labels.name, lines)


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
        raise Mistake(f"{parts[0].names[0]} is empty. The {split} set needs at least one pair of lines.")
    if split == "train":
        names = (Path(part.names[0]).name for part in parts)
        files = list(zip(names, sizes, strict=True)) if len(parts) > 1 else []
        write_json(folder / "train.files.json", files)
        if files:
            more = f" and {len(files) - MOST_LISTED:,} more files" if len(files) > MOST_LISTED else ""
            print(f"train: {', '.join(f'{name} {size:,}' for name, size in files[:MOST_LISTED])} pairs{more}")
    return sum(sizes)


if __name__ == "__main__":
    run(main)
