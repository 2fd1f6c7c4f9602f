"""Formats of files that are no plain text: how their names end, how they begin, and what converts them."""

from __future__ import annotations

import re

CONVERTERS = {  # of translate-toolkit, both ways, as in sub2po and po2sub: end of a name -> the converter
    f".{end}": tool
    for tool, ends in {
        "sub": "srt sub ssa ass",
        "md": "md markdown",
        "yaml": "yaml yml",
        "prop": "properties",
        "ini": "ini",
        "json": "json",
        "php": "php",
        "resx": "resx",
        "toml": "toml",
    }.items()
    for end in ends.split()
}
OPTIONS = {"md": " --no-code-blocks --no-frontmatter"}  # of a converter
_WITHOUT = (  # formats of sentences without a converter that gives the file back
    "docx doc odt rtf pdf epub pptx idml ipynb svg vue js jsx mdx ftl xcstrings plist org rmd rst adoc tex bib "
    "sgm tbx ttx sbv"
)
_REMEDIES = {  # what makes pairs of a file -> ends of names
    "save its text, line n of one language as line n of the other": _WITHOUT,
    "xliff2po {0} train.po": "xliff xlf sdlxliff mqxliff",
    "ffmpeg -i {0} NEW.srt": "vtt",
    "save it as .xlsx": "xls xlsb ods numbers",
    "export it as .tmx": "sdltm sqlite",
    "export it as .jsonl": "parquet",
    "zstd -d {0}": "zst",
    "unzip {0}, or name it .xlsx if it is a spreadsheet": "zip",
    "gunzip, bunzip2 or unxz": "bz2 xz gzip tar",
    "lconvert {0} -o train.po": "qt",  # not ts, which is a language
    "html2po -t SOURCE TARGET train.po": "html htm",
    "prop2po -t SOURCE TARGET train.po": "strings",
    "android2po -t SOURCE TARGET train.po": "xml",
}
# How to make pairs of a file of a format that is not read. {0}: its name.
TO_PAIRS = {f".{end}": remedy for remedy, ends in _REMEDIES.items() for end in ends.split()}
TO_PAIRS |= {end: f"{tool}2po{OPTIONS.get(tool, '')} -t SOURCE TARGET train.po" for end, tool in CONVERTERS.items()}
_STARTS = {  # how a file begins -> end of a name
    rb"\d+\s*\n\d\d:\d\d:\d\d[,.]\d+ *-->": ".srt",
    rb"WEBVTT\s*\n": ".vtt",
    rb"\[Script Info\]": ".ass",
    rb"(?i)<!doctype html|<html[\s>]": ".html",
    rb"(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE TS>|<TS )": ".qt",
    rb"<\?xml": ".xml",
    rb"\{\\rtf|%PDF-|\xd0\xcf\x11\xe0": ".doc",
    rb"PK\x03\x04": ".zip",
    rb"\x1f\x8b|BZh\d1AY": ".gzip",
    rb"SQLite format 3": ".sqlite",
}
START = 500  # bytes that say a format


def format_of_start(start: bytes) -> str:
    """The end that names have in the format of a file that begins like this; empty, if it may be plain text."""
    start = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((end for first, end in _STARTS.items() if re.match(first, start)), "")
