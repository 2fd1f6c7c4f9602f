"""Choice of words for the built-in corpus: random words for a clause that makes sense and has one reading."""

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import TypeVar

from transformer.corpora.toy.clauses import Clause, Phrase, english_number, german_number
from transformer.corpora.toy.lexicon import (
    ADJECTIVES,
    ADVERBS,
    COMPOUNDS,
    MODALS,
    NOUNS,
    PEOPLE,
    TOWNS,
    VERBS,
    Adjective,
    Adverb,
    Noun,
    Verb,
)

T = TypeVar("T")
KINDS = ("transitive", "separable", "dative", "ditransitive", "experiencer", "place", "bare", "report")
ALIVE = ("person", "animal")
VERBS_OF = {kind: [verb for verb in VERBS if verb.kind.startswith(kind)] for kind in KINDS}


@cache
def nouns(classes: tuple[str, ...], kin: bool) -> list[Noun]:
    """The nouns that have one of the classes. kin: whether family members are included."""
    return [noun for noun in NOUNS if overlap(noun.classes, classes) and (kin or "kin" not in noun.classes)]


@cache
def adjectives(classes: tuple[str, ...]) -> list[Adjective]:
    """The adjectives that can describe a noun of these classes."""
    return [adjective for adjective in ADJECTIVES if overlap(adjective.classes, classes)]


def overlap(classes: tuple[str, ...], allowed: tuple[str, ...]) -> bool:
    """Whether two tuples of classes have a class in common."""
    return any(name in allowed for name in classes)


def owner(subject: Phrase) -> str:
    """The possessive determiner that refers to the subject, or "" where English would be ambiguous."""
    if "person" not in subject.noun.classes:
        return ""
    return {"p": "their", "m": "his", "f": "her", "n": ""}[subject.key]


class Draft:
    """The random choices of one sentence, which uses no noun or verb twice.

    All choices come from `rng.random()`, whose values are the same in every version of Python.
    """

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.used: list[object] = []

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, all equally likely."""
        return items[int(self.rng.random() * len(items))]

    def fresh(self, items: Sequence[T]) -> T:
        """One of the words that the sentence does not contain yet."""
        while (item := self.pick(items)) in self.used:
            pass
        self.used.append(item)
        return item

    def weighted(self, weights: dict[T, int]) -> T:
        """One of the keys, with probability proportional to its weight."""
        place = int(self.rng.random() * sum(weights.values()))
        for item, weight in weights.items():
            place -= weight
            if place < 0:
                return item
        raise AssertionError("random() is below 1")

    def noun(self, classes: tuple[str, ...], kin: bool = False) -> Noun:
        """A noun of one of the classes, often as a compound. kin: allow family members, which need a possessive."""
        noun = self.fresh(nouns(classes, kin))
        return self.pick(COMPOUNDS[noun.german]) if noun.german in COMPOUNDS and self.chance(0.85) else noun

    def name(self) -> Phrase:
        return Phrase(self.fresh(PEOPLE))

    def adjective(self, noun: Noun) -> Adjective | None:
        return self.pick(adjectives(noun.classes)) if self.chance(0.22) and "kin" not in noun.classes else None

    def number(self, noun: Noun) -> int:
        """A number for a noun: 2 to 7 living beings, or 2 to 99 things."""
        if overlap(noun.classes, ALIVE):
            return 2 + int(self.rng.random() * 6)
        return 2 + int(self.rng.random() * (11 if self.chance(0.4) else 98))

    def phrase(self, noun: Noun, style: str, possessive: str = "") -> Phrase:
        """A phrase of a noun. style: definite, a, bare (a plural without determiner), no, number or owned."""
        if style == "number":
            return Phrase(noun, "", True, self.number(noun), self.adjective(noun))
        plural = self.chance(0.2) and "kin" not in noun.classes
        number = self.number(noun) if style == "definite" and plural and self.chance(0.5) else 0
        determiner = {"definite": "the", "a": "a", "no": "no", "owned": possessive, "bare": ""}[style]
        plural = (plural and style != "a") or style == "bare"
        return Phrase(noun, determiner, plural, number, self.adjective(noun))

    def subject(self, verb: Verb, style: str, negated: bool) -> Phrase:
        """A subject for a verb. style: given (definite or a name), definite, new ("a" or a numeral), or any."""
        if style == "any":
            style = "new" if self.chance(0.25) else "given"
        bare = verb.kind != "experiencer"  # "experiencer" needs a visible dative; names and numerals have none
        if style == "given" and bare and "person" in verb.subjects and self.chance(0.3):
            return self.name()
        if style == "new":
            number = bare and (negated or self.chance(0.35))
            return self.phrase(self.noun(verb.subjects), "number" if number else "a")
        return self.phrase(self.noun(verb.subjects), "definite")

    def direct(self, verb: Verb, subject: Phrase, negated: bool, definite: bool) -> Phrase:
        """The direct object of a verb. In a negated clause an indefinite object may get kein."""
        possessive = "" if definite else owner(subject)
        accusative = "dative" not in verb.kind and verb.kind != "experiencer"
        if "person" in verb.objects and not definite and verb.kind != "experiencer" and self.chance(0.15):
            return self.name()
        noun = self.noun(verb.objects, kin=bool(possessive))
        if "kin" in noun.classes:
            return self.phrase(noun, "owned", possessive)
        styles = {"definite": 5}
        if possessive and "owned" in noun.classes:
            styles["owned"] = 3
        if accusative and negated and not definite:
            styles["no"] = 4
        elif accusative and not definite:
            bare = noun.german != noun.german_plural and not overlap(noun.classes, ALIVE)
            styles |= {"a": 2, "number": 2, "bare": int(bare)}
        return self.phrase(noun, self.weighted(styles), possessive)

    def recipient(self, subject: Phrase, definite: bool) -> Phrase:
        """The recipient: a person."""
        possessive = "" if definite else owner(subject)
        if not definite and self.chance(0.2):
            return self.name()
        noun = self.noun(("person",), kin=bool(possessive))
        return self.phrase(noun, "owned" if "kin" in noun.classes else "definite", possessive)

    def place(self, verb: Verb) -> tuple[Phrase, bool]:
        """A town or a place with its article, and whether it is a direction ("into") or not ("in")."""
        directed = "direction" in verb.objects and ("static" not in verb.objects or self.chance(0.5))
        if "place" not in verb.objects or ("city" in verb.objects and self.chance(0.4)):
            return Phrase(self.pick(TOWNS)), directed
        noun = self.noun(("place",))
        return Phrase(noun, "the", adjective=self.adjective(noun)), directed

    def adverb(self, tense: str, negated: bool, fronted: bool) -> Adverb:
        """An adverbial of time that fits the tense. fronted: whether it is the first part, which "oft" never is."""
        if self.chance(0.2):
            hour = 2 + int(self.rng.random() * 11)
            return Adverb(f"um {german_number(hour)} Uhr", f"at {english_number(hour)} o'clock", (), number=True)
        fitting = [adverb for adverb in ADVERBS if tense in adverb.tenses and (adverb.negatable or not negated)]
        return self.pick([adverb for adverb in fitting if not fronted or adverb.german != "oft"])

    def clause(
        self, kind: str, tense: str, negated: bool, style: str, definite: bool = False, adverb: Adverb | None = None
    ) -> Clause:
        """A clause with a verb of the kind. style: of the subject. definite: whether the object must have "the"."""
        verb = self.fresh([verb for verb in VERBS_OF[kind] if (kind, tense) != ("report", "perfect") or verb.objects])
        subject = self.subject(verb, style, negated)
        recipient = self.recipient(subject, definite) if kind == "ditransitive" else None
        intransitive, definite = kind in ("place", "bare", "report"), definite and not recipient
        direct = None if intransitive else self.direct(verb, subject, negated, definite)
        place, directed = self.place(verb) if kind == "place" else (None, False)
        modal = self.pick(MODALS) if tense == "modal" else None
        return Clause(verb, tense, subject, direct, recipient, place, directed, modal, adverb, negated)

    def relative(self, head: Phrase, tense: str) -> tuple[Clause, str]:
        """A clause in which `head` is the subject or the object, and which of them. Its German must show which."""
        used = list(self.used)
        while True:
            self.used = list(used)
            verb = self.fresh(VERBS_OF[self.pick(("transitive", "separable", "dative"))])
            negated = self.chance(0.15)
            if self.chance(0.4) and overlap(head.noun.classes, verb.subjects):
                role, subject, direct = "subject", head, self.direct(verb, head, negated, False)
            elif overlap(head.noun.classes, verb.objects):
                role, subject, direct = "direct", self.subject(verb, "given", negated), head
            else:
                continue
            clause = Clause(verb, tense, subject, direct, negated=negated)
            if not overlap(direct.noun.classes, ALIVE) or clause.case_shows_roles:
                return clause, role
