"""Sentences of the built-in corpus: German-English pairs from a synchronous grammar, the same on every machine.

A sentence starts as a frame: one value of each factor below. Its words and subordinate clause are then drawn at random.
Some frames never occur in train: a model must combine their known parts in a new way. Every sentence has one
translation: the object is first in German exactly if it is definite and the subject is new.
"""

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from transformer.corpora.toy.clauses import (
    DATIVE,
    NOMINATIVE,
    RELATIVE,
    Clause,
    Phrase,
    english_clause,
    german_final,
    german_main,
)
from transformer.corpora.toy.word_choice import Draft

PHENOMENA = ("agreement", "case", "compound", "name", "negation", "number", "separable", "verb_final")
SIZES = {"test": 500, "valid": 500, "train": 20_000}
SEED = 170603762
GERMAN_WORDS = range(5, 14)  # words in a German sentence

# The factors of a frame: the weight of each value.
OPENINGS = {"subject": 6, "adverbial": 5, "object": 5, "question": 4, "clause": 6}
TENSES = {"present": 5, "perfect": 5, "modal": 4, "future": 3}
PREDICATES = {"transitive": 5, "separable": 5, "dative": 3, "ditransitive": 3, "experiencer": 3, "place": 3}
POLARITIES = {"affirmative": 3, "negated": 2}
CLAUSES = {"none": 28, "dass": 3, "subject_relative": 3, "object_relative": 3}
CLAUSES |= {"weil": 2, "obwohl": 2, "wenn": 2, "bevor": 2}
FACTORS = (OPENINGS, TENSES, PREDICATES, POLARITIES, CLAUSES)
RECIPIENTS = ("ditransitive", "experiencer")  # kinds of verbs that take a dative and another case
CONJUNCTIONS = {"weil": "because", "obwohl": "although", "wenn": "if", "bevor": "before"}


@dataclass(frozen=True)
class Pair:
    """A German sentence and its English translation."""

    source: str
    target: str
    frame: str
    phenomena: tuple[str, ...]


class Wording(NamedTuple):
    """Words in German and in English, and the clauses that they express."""

    german: str
    english: str
    clauses: list[Clause]


class Frame(NamedTuple):
    """The structure of a sentence: its first part, tense, kind of verb, negation and second clause."""

    opening: str
    tense: str
    predicate: str
    polarity: str
    clause: str

    @property
    def possible(self) -> bool:
        """Whether the frame is correct German and differs from English in word order."""
        if self.opening == "clause" and self.clause not in CONJUNCTIONS:
            return False
        if self.opening == "object" and (self.predicate == "place" or self.clause in ("dass", "subject_relative")):
            return False
        if self.clause == "object_relative" and self.predicate in ("place", "ditransitive"):
            return False
        if self.predicate == "experiencer" and (self.tense == "modal" or self.clause == "bevor"):
            return False
        if (self.clause, self.tense) == ("wenn", "perfect"):
            return False
        if (self.opening, self.polarity, self.clause) == ("question", "negated", "subject_relative"):
            return False
        same_order = self.predicate not in ("separable", "ditransitive") and self.clause in ("none", *CONJUNCTIONS)
        return not (same_order and (self.opening, self.tense, self.polarity) == ("subject", "present", "affirmative"))

    @property
    def held_out(self) -> bool:
        """Whether the frame is kept out of train. One in four is; train still has every combination of two values."""
        return sum(list(factor).index(value) for factor, value in zip(FACTORS, self, strict=True)) % 4 == 0


def core_clause(draft: Draft, frame: Frame) -> Clause:
    """A clause that fits the frame, its words drawn at random."""
    style = {"subject": "given", "object": "new"}.get(frame.opening, "any")
    style = {"dass": "any", "subject_relative": "definite"}.get(frame.clause, style)
    negated = frame.polarity == "negated"
    fronted = frame.opening == "adverbial" and frame.clause != "dass"
    timeless = frame.clause == "object_relative" or frame.predicate == "experiencer"
    dated = fronted or (not timeless and draft.chance(0.15))
    adverb = draft.adverb(frame.tense, negated, fronted) if dated else None
    definite = frame.opening == "object" or frame.clause == "object_relative"
    return draft.clause(frame.predicate, frame.tense, negated, style, definite, adverb)


def relative_clause(draft: Draft, head: Phrase, tense: str) -> Wording:
    """A relative clause about `head`: "den Anna sieht", "that Anna sees"."""
    tense = draft.pick(("present", "perfect")) if tense != "perfect" else "perfect"
    clause, role = draft.relative(head, tense)
    case = {"subject": NOMINATIVE, "direct": clause.direct_case}[role]
    pronoun = "who" if role == "subject" and "person" in head.noun.classes else "that"
    german = german_final(clause, RELATIVE[head.key][case], role)
    return Wording(german, f"{pronoun} {english_clause(clause, gap=role)}", [clause])


def subordinate_clause(draft: Draft, conjunction: str, tense: str) -> Clause:
    """The clause after weil, obwohl, wenn or bevor, in a tense that fits the main clause."""
    free = conjunction in ("weil", "obwohl")
    if tense != "perfect":
        tense = draft.pick(("present", "present", "perfect", "modal")) if free else "present"
    kind = draft.weighted({"bare": 2, "transitive": 3, "separable": 3, "dative": 2, "experiencer": int(free)})
    if kind == "experiencer" and tense == "modal":
        tense = "present"
    negated = conjunction != "bevor" and draft.chance(0.2)
    return draft.clause(kind, tense, negated, "any")


def front(frame: Frame, core: Clause) -> tuple[str, str]:
    """The German words before the finite verb, and the name of that part."""
    if frame.opening == "subject":
        return core.subject.german(core.subject_case), "subject"
    if frame.opening == "adverbial":
        assert core.adverb
        return core.adverb.german, "adverb"
    if frame.opening == "object" and core.recipient:
        return core.recipient.german(DATIVE), "recipient"
    if frame.opening == "object":
        assert core.direct
        return core.direct.german(core.direct_case), "direct"
    return "", ""


def main_clause(frame: Frame, core: Clause, role: str = "", german: str = "", english: str = "") -> tuple[str, str]:
    """A main clause, German and English. The part `role` has the relative clause `german` and `english`."""
    first, skipped = front(frame, core)
    behind_subject = end = ""
    if german and role == skipped:
        first += f", {german},"
    elif german and role == "subject":
        behind_subject = f", {german},"
    elif german:  # the relative clause of an object that is not first ends the sentence
        end = f", {german}"
    relatives = {role: english} if english else {}
    translation = english_clause(core, frame.opening == "question", front=skipped, **relatives)
    return german_main(core, first, skipped, behind_subject) + end, translation


def with_relative_clause(draft: Draft, frame: Frame, core: Clause) -> Wording:
    """The sentence in which the subject or the object of `core` has a relative clause."""
    role = "subject" if frame.clause == "subject_relative" else "direct"
    head = core.subject if role == "subject" else core.direct
    assert head
    inner = relative_clause(draft, head, frame.tense)
    return Wording(*main_clause(frame, core, role, inner.german, inner.english), [core, *inner.clauses])


def with_conjunction(draft: Draft, frame: Frame, core: Clause) -> Wording:
    """The sentence in which `core` follows or precedes a clause with weil, obwohl, wenn or bevor."""
    inner = subordinate_clause(draft, frame.clause, frame.tense)
    german, english = german_final(inner, frame.clause), f"{CONJUNCTIONS[frame.clause]} {english_clause(inner)}"
    if frame.opening == "clause":
        return Wording(german_main(core, f"{german},", ""), f"{english}, {english_clause(core)}", [core, inner])
    main, translation = main_clause(frame, core)
    return Wording(f"{main}, {german}", f"{translation} {english}", [core, inner])


def within_report(draft: Draft, frame: Frame, core: Clause) -> Wording:
    """The sentence in which someone says, writes, knows or believes that `core`."""
    tense, adverb = "present", None
    if frame.opening == "adverbial":
        tense, adverb = "perfect", draft.adverb("perfect", False, True)
    matrix = draft.clause("report", tense, False, "given" if frame.opening == "subject" else "any", adverb=adverb)
    main, translation = main_clause(frame, matrix)
    main += f", {german_final(core, 'dass')}"
    return Wording(main, f"{translation} that {english_clause(core)}", [matrix, core])


def sentence(draft: Draft, frame: Frame, core: Clause) -> Wording:
    """The sentence of the frame around `core`, without capital letter and full stop."""
    if frame.clause == "none":
        return Wording(*main_clause(frame, core), [core])
    if frame.clause == "dass":
        return within_report(draft, frame, core)
    return (with_conjunction if frame.clause in CONJUNCTIONS else with_relative_clause)(draft, frame, core)


def phenomena(frame: Frame, clauses: list[Clause]) -> tuple[str, ...]:
    """The phenomena that a sentence shows, in alphabetical order."""
    phrases = [phrase for clause in clauses for phrase in clause.phrases]
    adverbs = [clause.adverb for clause in clauses if clause.adverb]
    kinds = [clause.verb.kind for clause in clauses]
    shown = {
        "agreement": any(phrase.adjective or phrase.determiner in ("his", "her", "their") for phrase in phrases),
        "case": frame.opening == "object" or any("dative" in kind or kind in RECIPIENTS for kind in kinds),
        "compound": any(phrase.noun.compound for phrase in phrases),
        "name": any("name" in phrase.noun.classes for phrase in phrases),
        "negation": any(clause.negated for clause in clauses),
        "number": any(phrase.number for phrase in phrases) or any(adverb.number for adverb in adverbs),
        "separable": any(clause.verb.prefix for clause in clauses),
        "verb_final": frame.clause != "none" or any(clause.tense != "present" for clause in clauses),
    }
    return tuple(label for label in PHENOMENA if shown[label])


def pair(rng: Random, frame: Frame) -> Pair:
    """A sentence pair of a frame, drawn again until its length fits and its German has one reading."""
    while True:
        draft = Draft(rng)
        core = core_clause(draft, frame)
        german, english, clauses = sentence(draft, frame, core)
        clear = frame.opening != "object" or core.case_shows_roles
        if clear and len(german.split()) in GERMAN_WORDS:
            mark = "?" if frame.opening == "question" else "."
            source, target = (text[0].upper() + text[1:] + mark for text in (german, english))
            return Pair(source, target, " ".join(frame), phenomena(frame, clauses))


def draw_frame(rng: Random, held_out: bool) -> Frame:
    """A possible frame, drawn factor by factor. held_out: whether it must be one that is kept out of train."""
    draft = Draft(rng)
    while True:
        frame = Frame(*(draft.weighted(factor) for factor in FACTORS))
        if frame.possible and frame.held_out == held_out:
            return frame


def toy_corpus() -> dict[str, list[Pair]]:
    """The splits train, valid and test, without a repeated source. In valid and test 3 of 8 frames are not in train."""
    rng = Random(SEED)
    taken: set[str] = set()
    splits: dict[str, list[Pair]] = {}
    for split, size in SIZES.items():
        pairs = splits[split] = []
        while len(pairs) < size:
            new = split != "train" and len(pairs) % 8 < 3
            candidate = pair(rng, draw_frame(rng, held_out=new))
            if candidate.source not in taken:
                taken.add(candidate.source)
                pairs.append(candidate)
    return {split: splits[split] for split in ("train", "valid", "test")}
