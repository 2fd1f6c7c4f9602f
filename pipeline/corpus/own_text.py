"""Files as people have them to a corpus folder: train, valid and test, a file for each language.

A corpus without valid or test gets them from train. The hash of a source, without case and punctuation, decides its
split: pairs of equal sources are in one split, and they stay there when the file grows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from shlex import quote

from pipeline.corpus.tables import ENDS as TABLES
from pipeline.corpus.tables import HEAD, Table, names_of_both
from transformer.corpora.catalogues import ENDS as CATALOGUES
from transformer.corpora.catalogues import Catalogue
from transformer.corpora.overlap import words
from transformer.corpora.parallel_text import VALID, LinePair, ParallelText, TwoFiles, check_format, user_texts
from transformer.corpora.text_files import LONGEST_LINE, lines_of, open_file, plain_name
from transformer.files import Mistake, read_json, sha256, sha256_text, whole_folder, write_json
from transformer.text.characters import half_character

SPLITS = ("train", "valid", "test")
SPLIT = re.compile(rf"(train|valid|test|{'|'.join(VALID)})(?=[\W\d_]|$)", re.IGNORECASE)  # at the beginning of a name
PAIRS_DRAWN, MOST_DRAWN = 1_000, 0.1  # pairs of valid, and of test, that are drawn; at most this share of all
FEWEST_DRAWN = 50  # pairs of a drawn split: with fewer, a score is chance
RECORD = "recipe.json"  # in a folder that was written here: the share of its drawn splits, and its files' checksums
IN_GIT = 10_000_000  # bytes of text; more is for DVC

Texts = Mapping[str, Sequence[ParallelText]]


def texts_of(
    inputs: Sequence[Path], languages: tuple[str, str], columns: Sequence[str] = (), separator: str = ""
) -> Texts:
    """The texts of each split in a folder or in some files. A file whose name begins with no split is of train.

    columns: of tables, see Table. Raises Mistake for an input that does not exist or has no known format, and if
    there is no text of train.
    """
    if missing := [str(path) for path in inputs if not path.exists()]:
        raise Mistake(f"{', '.join(missing)}: no such file or folder. Nothing was written.")
    texts: dict[str, list[ParallelText]] = {split: [] for split in SPLITS}
    for path in filter(Path.is_file, inputs):
        check_format(path)
    if len(inputs) == 2 and not any(map(is_one_text, inputs)):
        return {**texts, "train": [two_files(inputs[0], inputs[1], languages)]}
    if len(inputs) > 1 and any(path.is_dir() for path in inputs):
        raise Mistake("A folder is read alone. Nothing was written. Give one folder, or files.")
    files = list(inputs)
    if inputs[0].is_dir():
        files = sorted(path for path in inputs[0].iterdir() if is_one_text(path) and SPLIT.match(path.name))
        for split in SPLITS:
            names = (split, *VALID) if split == "valid" else (split,)
            of_names = (user_texts(inputs[0], name, *languages) for name in names)
            texts[split] = next((parts for parts in of_names if parts), [])
    known = {name for parts in texts.values() for part in parts for name in part.names}
    for path in (path for path in files if str(path) not in known):
        if not is_one_text(path):
            raise Mistake(
                f"{path}: no format that is read. Give one file of pairs ({' '.join((*TABLES, *CATALOGUES))}), a text "
                "file for each language, or a folder of train, valid and test."
            )
        catalogue = plain_name(path).endswith(CATALOGUES)
        split = "train" if [path] == list(inputs) else split_of(path)
        texts[split].append(Catalogue(path, languages) if catalogue else Table(path, languages, columns, separator))
    if not texts["train"]:
        there = ", ".join(sorted(path.name for path in inputs[0].glob("*"))[:12]) or "no files"
        raise Mistake(f"{inputs[0]} has no text of train. It has {there}. Name the files that hold your pairs.")
    return texts


def is_one_text(path: Path) -> bool:
    """Whether a file has a format that holds both sides. A .txt does if most of its first lines have a tab."""
    name = plain_name(path)
    if not path.is_file() or not name.endswith((*TABLES, *CATALOGUES)):
        return False
    if not name.endswith(".txt"):
        return True
    with open_file(path) as file:
        start = [*islice(file, HEAD)]
    return 2 * sum(b"\t" in line for line in start) > len(start)


def two_files(first: Path, second: Path, languages: tuple[str, str]) -> TwoFiles:
    """Two files of which line n of one translates line n of the other; the last language in each name says its side.

    Raises Mistake if both are of one side.
    """
    sides = side_of(first, languages), side_of(second, languages)
    if first == second or sides in ((0, 0), (1, 1)):
        raise Mistake(f"{first} and {second} are of one side. Nothing was written. Give a file for each language.")
    if sides[0] == 1 or sides[1] == 0:
        first, second = second, first
    return TwoFiles(lines_of(first), lines_of(second))


def side_of(path: Path, languages: tuple[str, str]) -> int | None:
    """0 if the last language in the name of a file is the source, 1 if it is the target; None if it names neither."""
    for word in reversed(re.split(r"[\W_]+", plain_name(path).casefold())):
        for side, language in enumerate(names_of_both(languages)):
            if word in language:
                return side
    return None


def split_of(path: Path) -> str:
    """The split that a file's name begins with; train if with none."""
    name = SPLIT.match(path.name)
    return "train" if not name else "valid" if name[1].lower() in VALID else name[1].lower()


def name_of(path: Path) -> str:
    """A name for the corpus: of its folder, or of its file unless that is the name of a split."""
    path = path.resolve()
    stem = path.name if path.is_dir() else path.name.partition(".")[0]
    return re.sub(r"[^\w-]+", "-", path.parent.name if SPLIT.fullmatch(stem) else stem).strip("-") or "text"


def write_corpus(folder: Path, texts: Texts, languages: tuple[str, str], force: bool = False) -> str:
    """Write the texts as a corpus folder; returns what was done, for people.

    force: replace a folder that has edits. Raises Mistake for a folder that was not written here or has edits, and
    for a text that is too small to be split.
    """
    record = check_folder(folder, force)
    left_out: Counter[str] = Counter()
    drawn = [split for split in SPLITS if not texts[split]]
    pairs = sum(1 for part in texts["train"] for _ in usable_pairs(part, Counter()))
    if not pairs:
        names = ", ".join(dict.fromkeys(name for part in texts["train"] for name in part.names))
        raise Mistake(f"{names}: no pair of {' and '.join(languages)}. Nothing was written. Are the languages right?")
    share = record.get("share") or min(MOST_DRAWN, PAIRS_DRAWN / pairs)
    counts: Counter[str] = Counter()
    with whole_folder(folder) as temporary, ExitStack() as stack:
        files = {
            (split, code): stack.enter_context(open(temporary / f"{split}.{code}", "w", encoding="utf-8", newline="\n"))
            for split in SPLITS
            for code in languages
        }
        for split, part in ((split, part) for split, parts in texts.items() for part in parts):
            for pair in usable_pairs(part, left_out):
                drawn_split = split_by_hash(pair[0], share, drawn) if split == "train" else split
                counts[drawn_split] += 1
                for code, line in zip(languages, pair, strict=True):
                    files[drawn_split, code].write(line + "\n")
        stack.close()
        if empty := [split for split in SPLITS if not counts[split]]:
            raise Mistake(
                f"{pairs} pairs are too few: no pair is left for {' and '.join(empty)}. Nothing was written. Add pairs."
            )
        sums = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
        write_json(temporary / RECORD, {"share": share, "sha256": sums})
    gone = ", ".join(f"{count:,} {why}" for why, count in left_out.items()) or "no pair"
    sizes = ", ".join(f"{counts[split]:,} {split}" for split in SPLITS)
    rule = (
        f" {' and '.join(drawn)} were drawn from train by a hash of the source, {share:.1%} of it each, since {folder} "
        f"was first written (then about {PAIRS_DRAWN:,} pairs, at most {MOST_DRAWN:.0%}); a longer file keeps it."
    )
    small = [split for split in drawn if counts[split] < FEWEST_DRAWN]
    if small:
        rule += (
            f" {' and '.join(small)} have fewer than {FEWEST_DRAWN} pairs, so scores say little. Is the source right?"
        )
    return f"Left out: {gone}.\n{folder} was written: {sizes} pairs.{rule if drawn else ''}"


def describe_source(text: ParallelText, languages: tuple[str, str]) -> str:
    """Which files or columns were taken as source and target, for people."""
    source, target = text.names
    if isinstance(text, Table):
        return f"{text.path}: {text.describe_columns()}."
    return f"{source}." if source == target else f"{source} as {languages[0]} and {target} as {languages[1]}."


def check_folder(folder: Path, force: bool) -> dict:
    """What RECORD says of a folder; {} if there is none. Raises Mistake if the folder may not be replaced."""
    if not folder.exists():
        return {}
    if not (folder / RECORD).is_file():
        raise Mistake(f"{folder} is another folder of yours. Nothing was written. Use --name with another name.")
    record = read_json(folder / RECORD)
    now = {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != RECORD}
    if now != record["sha256"] and not force:
        raise Mistake(
            f"{folder} has edits, which would be lost. Nothing was written. Use --force, or --name with another name."
        )
    return record


def usable_pairs(text: ParallelText, left_out: Counter[str]) -> Iterator[LinePair]:
    """The pairs that training can use, with single spaces. left_out: gets the number of others, by reason."""
    for pair in text.pairs():
        source, target = (" ".join(side.split()) for side in pair)
        if not source or not target:
            left_out["with one side only" if source or target else "blank"] += 1
        elif (
            "\0" in source + target
            or half_character(source + target)
            or max(len(source.encode()), len(target.encode())) > LONGEST_LINE
        ):
            left_out["with a NUL, half a character, or too long"] += 1
        else:
            yield source, target


def split_by_hash(source: str, share: float, drawn: Sequence[str]) -> str:
    """The split of a pair by the hash of its source. drawn: the splits that are drawn, each with this share."""
    position = int(sha256_text(" ".join(words(source)))[:16], 16) / 16**16
    split = "test" if position < share else "valid" if position >= 1 - share else "train"
    return split if split in drawn else "train"


def commit_command(folder: Path, params: Path) -> str:
    """The line that gives a corpus to git or, if it is large, to DVC."""
    large = sum(path.stat().st_size for path in folder.rglob("*")) > IN_GIT
    name, ignored = quote(str(folder)), quote(str(folder.parent / ".gitignore"))
    add = f"dvc add {name} && git add {name}.dvc {ignored}" if large else f"git add {name}"
    return f'{add} {quote(str(params))} && git commit -m "My text"'
