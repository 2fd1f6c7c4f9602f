"""The built-in corpus: its sizes, its splits, correct German and English, and how hard it is to translate."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
import sacrebleu

from transformer.corpora.toy import lexicon
from transformer.corpora.toy import word_choice as draft
from transformer.corpora.toy.clauses import (
    Clause,
    Phrase,
    english_clause,
    english_number,
    german_final,
    german_main,
    german_number,
)
from transformer.corpora.toy.grammar import PHENOMENA, Pair, draw_frame, pair, toy_corpus

SHA256 = "a36faa84684149ba062ddc35b15dbfb8ace8669e595c3b318e25479432f08084"
NOUNS = {noun.german: noun for noun in (*lexicon.NOUNS, *lexicon.PEOPLE, *lexicon.TOWNS)}
NOUNS |= {noun.german: noun for compounds in lexicon.COMPOUNDS.values() for noun in compounds}
VERBS = {verb.prefix + verb.infinitive: verb for verb in lexicon.VERBS if verb.kind != "bare" or verb.prefix}
ADJECTIVES = {adjective.english: adjective for adjective in lexicon.ADJECTIVES}
MODALS = {modal.infinitive: modal for modal in lexicon.MODALS}


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[Pair]]:
    return toy_corpus()


def as_bytes(corpus: dict[str, list[Pair]]) -> bytes:
    rows = [(split, p.source, p.target, p.frame, *p.phenomena) for split, pairs in corpus.items() for p in pairs]
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def words(sentence: str) -> list[str]:
    return re.findall(r"[\w'-]+|[^\w\s]", sentence)


# What is in it


def test_the_splits_have_their_sizes_and_no_pair_twice(corpus):
    assert {split: len(pairs) for split, pairs in corpus.items()} == {"train": 20_000, "valid": 500, "test": 500}
    sources = [p.source for pairs in corpus.values() for p in pairs]
    assert len(set(sources)) == len(sources), "a source occurs twice: within a split, or in two splits"


def test_it_is_the_same_to_the_byte_every_time(corpus):
    assert hashlib.sha256(as_bytes(corpus)).hexdigest() == SHA256


@pytest.mark.full
def test_it_does_not_depend_on_the_hash_seed_of_the_process():
    code = "from test_toy_corpus import *; print(hashlib.sha256(as_bytes(toy_corpus())).hexdigest())"
    here, root = Path(__file__).parent, Path(__file__).parents[2]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # another than that of this process
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{here}{os.pathsep}{root}"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == SHA256


def test_sentences_are_short_and_punctuated(corpus):
    for p in (p for pairs in corpus.values() for p in pairs):
        assert 5 <= len(p.source.split()) <= 13
        assert p.source[0].isupper()
        assert p.target[0].isupper()
        assert p.source[-1] == p.target[-1] in ".?"
        assert re.fullmatch(r"[^ ]+( [^ ]+)*", p.source)
        assert re.fullmatch(r"[A-Za-z'-]+(,? [A-Za-z'-]+)*[.?]", p.target)


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_each_phenomenon_has_enough_sentences_to_be_measured(corpus, split, phenomenon):
    assert sum(phenomenon in p.phenomena for p in corpus[split]) >= 60


# New combinations of known parts


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_third_of_the_sentences_have_a_frame_never_seen_in_train(corpus, split):
    seen = {p.frame for p in corpus["train"]}
    assert 0.30 <= sum(p.frame not in seen for p in corpus[split]) / len(corpus[split]) <= 0.45


def test_every_two_parts_of_an_unseen_frame_are_frequent_in_train(corpus):
    def pairs_of(frame: str) -> list[tuple]:
        return list(combinations(enumerate(frame.split()), 2))

    met = Counter(two for p in corpus["train"] for two in pairs_of(p.frame))
    rare = {two: met[two] for p in corpus["test"] for two in pairs_of(p.frame) if met[two] < 50}
    assert not rare


# One translation for each sentence


def assert_one_to_one(pairs: list[Pair]) -> None:
    english, german = {}, {}
    for p in pairs:
        assert english.setdefault(p.source, p.target) == p.target
        assert german.setdefault(p.target, p.source) == p.source


@pytest.mark.full
def test_no_wording_has_two_translations_in_a_small_lexicon(monkeypatch):
    """With few words the grammar repeats sentences, so that one wording with two translations would be found."""
    few = "Mann Junge Frau Kind Bruder Hund Katze Apfel Birne Koffer Tür Garten Schlüssel".split()  # noqa: SIM905
    monkeypatch.setattr(draft, "NOUNS", [NOUNS[word] for word in few])
    monkeypatch.setattr(draft, "PEOPLE", [NOUNS["Anna"], NOUNS["Paul"]])
    monkeypatch.setattr(draft, "TOWNS", lexicon.TOWNS[:1])
    monkeypatch.setattr(draft, "MODALS", lexicon.MODALS[2:3])
    monkeypatch.setattr(draft, "COMPOUNDS", {head: nouns[:1] for head, nouns in lexicon.COMPOUNDS.items()})
    monkeypatch.setattr(draft.Draft, "adjective", lambda self, noun: None)
    monkeypatch.setattr(draft.Draft, "number", lambda self, noun: 2)
    monkeypatch.setattr(draft.Draft, "fresh", draft.Draft.pick)
    draft.nouns.cache_clear()
    rng = Random(1)
    pairs = [pair(rng, draw_frame(rng, held_out=False)) for _ in range(20_000)]
    draft.nouns.cache_clear()
    assert len({p.source for p in pairs}) < 19_000, "too few sentences are repeated for this check to find anything"
    assert_one_to_one(pairs)


# Correct German, correct English


def phrase(text: str, determiner: str = "the", plural: bool = False, number: int = 0, adjective: str = "") -> Phrase:
    return Phrase(NOUNS[text], determiner, plural, number, ADJECTIVES[adjective] if adjective else None)


@pytest.mark.parametrize(
    ("words", "nominative", "accusative", "dative", "english"),
    [
        (phrase("Hund", adjective="old"), "der alte Hund", "den alten Hund", "dem alten Hund", "the old dog"),
        (phrase("Hund", "a", adjective="old"), "ein alter Hund", "einen alten Hund", "einem alten Hund", "an old dog"),
        (phrase("Kind", "a", adjective="small"), "ein kleines Kind", "ein kleines Kind", "einem kleinen Kind",
         "a small child"),
        (phrase("Tasche", "her", adjective="expensive"), "ihre teure Tasche", "ihre teure Tasche",
         "ihrer teuren Tasche", "her expensive bag"),
        (phrase("Junge"), "der Junge", "den Jungen", "dem Jungen", "the boy"),
        (phrase("Nachbar", "a"), "ein Nachbar", "einen Nachbarn", "einem Nachbarn", "a neighbour"),
        (phrase("Kind", plural=True), "die Kinder", "die Kinder", "den Kindern", "the children"),
        (phrase("Frau", plural=True, adjective="tired"), "die müden Frauen", "die müden Frauen", "den müden Frauen",
         "the tired women"),
        (phrase("Auto", plural=True), "die Autos", "die Autos", "den Autos", "the cars"),
        (phrase("Apfel", "", True, 23, "fresh"), "dreiundzwanzig frische Äpfel", "dreiundzwanzig frische Äpfel",
         "dreiundzwanzig frischen Äpfeln", "twenty-three fresh apples"),
        (phrase("Brief", "no", True), "keine Briefe", "keine Briefe", "keinen Briefen", "any letters"),
        (phrase("Küchentür", "his"), "seine Küchentür", "seine Küchentür", "seiner Küchentür", "his kitchen door"),
        (phrase("Bürouhr", "a"), "eine Bürouhr", "eine Bürouhr", "einer Bürouhr", "an office clock"),
        (phrase("Anna", ""), "Anna", "Anna", "Anna", "Anna"),
    ],
)  # fmt: skip
def test_phrases_are_declined(words, nominative, accusative, dative, english):
    assert [words.german(case) for case in range(3)] == [nominative, accusative, dative]
    assert words.english() == english


ANNA, PAUL = phrase("Anna", ""), phrase("Paul", "")
OPEN_DOOR = {"verb": VERBS["aufmachen"], "subject": ANNA, "direct": phrase("Tür")}


@pytest.mark.parametrize(
    ("clause", "main", "final", "english"),
    [
        (Clause(tense="present", **OPEN_DOOR), "Anna macht die Tür auf", "dass Anna die Tür aufmacht",
         "Anna opens the door"),
        (Clause(tense="perfect", negated=True, **OPEN_DOOR), "Anna hat die Tür nicht aufgemacht",
         "dass Anna die Tür nicht aufgemacht hat", "Anna did not open the door"),
        (Clause(tense="modal", modal=MODALS["müssen"], negated=True, **OPEN_DOOR), "Anna muss die Tür nicht aufmachen",
         "dass Anna die Tür nicht aufmachen muss", "Anna does not have to open the door"),
        (Clause(tense="modal", modal=MODALS["können"], negated=True, **OPEN_DOOR), "Anna kann die Tür nicht aufmachen",
         "dass Anna die Tür nicht aufmachen kann", "Anna cannot open the door"),
        (Clause(tense="future", **OPEN_DOOR), "Anna wird die Tür aufmachen", "dass Anna die Tür aufmachen wird",
         "Anna will open the door"),
        (Clause(VERBS["sehen"], "perfect", ANNA, phrase("Hund", "no"), negated=True), "Anna hat keinen Hund gesehen",
         "dass Anna keinen Hund gesehen hat", "Anna did not see a dog"),
        (Clause(VERBS["geben"], "present", phrase("Frau"), phrase("Hut", "a"), phrase("Kind", plural=True)),
         "die Frau gibt den Kindern einen Hut", "dass die Frau den Kindern einen Hut gibt",
         "the woman gives a hat to the children"),
        (Clause(VERBS["fehlen"], "present", ANNA, phrase("Hund", plural=True)), "Anna fehlen die Hunde",
         "dass Anna die Hunde fehlen", "Anna misses the dogs"),
        (Clause(VERBS["zuhören"], "present", PAUL, phrase("Arzt")), "Paul hört dem Arzt zu",
         "dass Paul dem Arzt zuhört", "Paul listens to the doctor"),
        (Clause(VERBS["folgen"], "perfect", phrase("Bär", plural=True), phrase("Junge")), "die Bären sind dem Jungen "
         "gefolgt", "dass die Bären dem Jungen gefolgt sind", "the bears followed the boy"),
        (Clause(VERBS["laufen"], "perfect", PAUL, place=phrase("Wald"), directed=True), "Paul ist in den Wald gelaufen",
         "dass Paul in den Wald gelaufen ist", "Paul ran into the forest"),
        (Clause(VERBS["laufen"], "perfect", PAUL, place=phrase("Wald")), "Paul ist im Wald gelaufen",
         "dass Paul im Wald gelaufen ist", "Paul ran in the forest"),
        (Clause(VERBS["fahren"], "present", PAUL, place=phrase("Wien", ""), directed=True), "Paul fährt nach Wien",
         "dass Paul nach Wien fährt", "Paul drives to Vienna"),
        (Clause(VERBS["suchen"], "present", PAUL, phrase("Schlüssel"), adverb=lexicon.ADVERBS[0]),
         "Paul sucht oft den Schlüssel", "dass Paul oft den Schlüssel sucht", "Paul often looks for the key"),
    ],
)  # fmt: skip
def test_the_german_verb_is_second_or_last_the_english_in_order(clause, main, final, english):
    assert german_main(clause, clause.subject.german(clause.subject_case), "subject") == main
    assert german_final(clause, "dass") == final
    assert english_clause(clause) == english


def test_questions_and_sentences_that_start_with_the_object():
    clause = Clause(VERBS["einladen"], "present", phrase("Mann", "", True, 3), phrase("Arzt"), negated=True)
    assert german_main(clause, "", "") == "laden drei Männer den Arzt nicht ein"
    assert english_clause(clause, question=True) == "do three men not invite the doctor"
    assert german_main(clause, "den Arzt", "direct") == "den Arzt laden drei Männer nicht ein"


@pytest.mark.parametrize(
    ("number", "german", "english"),
    [(7, "sieben", "seven"), (12, "zwölf", "twelve"), (16, "sechzehn", "sixteen"), (17, "siebzehn", "seventeen"),
     (18, "achtzehn", "eighteen"), (21, "einundzwanzig", "twenty-one"), (30, "dreißig", "thirty"),
     (76, "sechsundsiebzig", "seventy-six"), (99, "neunundneunzig", "ninety-nine")],
)  # fmt: skip
def test_numerals_have_the_unit_first_in_german(number, german, english):
    assert (german_number(number), english_number(number)) == (german, english)


# A dictionary does not translate it


def learned_dictionary(pairs: list[Pair], rounds: int) -> dict[str, str]:
    """For each German word the most probable English one, by IBM model 1 (Brown et al. 1993)."""
    sides = [(uncapitalised(p.source), uncapitalised(p.target)) for p in pairs]
    probability: dict[tuple[str, str], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        count, total = defaultdict(float), defaultdict(float)
        for german, english in sides:
            for e in english:
                norm = sum(probability[g, e] for g in german)
                for g in german:
                    share = probability[g, e] / norm
                    count[g, e] += share
                    total[g] += share
        probability = defaultdict(float, {(g, e): n / total[g] for (g, e), n in count.items()})
    best: dict[str, str] = {}
    for g, e in sorted(probability, key=probability.__getitem__):
        best[g] = e
    return best


def uncapitalised(sentence: str) -> list[str]:
    """The words of a sentence; the first is lower-cased unless it is a noun or a name."""
    first, *rest = words(sentence)
    return [first if first in NOUNS else first.lower(), *rest]


def substituted(sentence: str, dictionary: dict[str, str]) -> str:
    """The sentence with each word replaced, in the German order."""
    english = " ".join(filter(None, (dictionary.get(word, word) for word in uncapitalised(sentence))))
    english = re.sub(r" ([.,?])", r"\1", re.sub(r"\ba ([aeiou])", r"an \1", english))
    return english[0].upper() + english[1:]


def bleu_of_substitution(pairs: list[Pair], dictionary: dict[str, str]) -> float:
    hypotheses = [substituted(p.source, dictionary) for p in pairs]
    return sacrebleu.corpus_bleu(hypotheses, [[p.target for p in pairs]]).score


@pytest.mark.full
def test_a_learned_dictionary_does_not_translate_it(corpus):
    assert bleu_of_substitution(corpus["test"], learned_dictionary(corpus["train"][:4000], rounds=4)) < 35
