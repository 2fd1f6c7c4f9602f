"""Clauses of the built-in corpus: a clause as data, and its wording in German and in English.

A clause holds who does what to whom, in which tense. German needs declension, the verb second or last, and split verbs;
English needs a fixed order, do-support and a/an. Nothing here is random.
"""

from dataclasses import dataclass

from transformer.corpora.toy.lexicon import Adjective, Adverb, Modal, Noun, Verb

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
# By gender (p: plural, the same for all three): the forms in the nominative, accusative and dative.
ARTICLE = {"m": ("der", "den", "dem"), "f": ("die", "die", "der"), "n": ("das", "das", "dem")}
ARTICLE["p"] = ("die", "die", "den")
RELATIVE = ARTICLE | {"p": ("die", "die", "denen")}
EIN_ENDING = {"m": ("", "en", "em"), "f": ("e", "e", "er"), "n": ("", "", "em"), "p": ("e", "e", "en")}
WEAK_ENDING = {"m": ("e", "en", "en"), "f": ("e", "e", "en"), "n": ("e", "e", "en"), "p": ("en", "en", "en")}
MIXED_ENDING = {"m": ("er", "en", "en"), "f": ("e", "e", "en"), "n": ("es", "es", "en"), "p": ("en", "en", "en")}
STRONG_PLURAL_ENDING = ("e", "e", "en")
EIN_WORD = {"a": "ein", "no": "kein", "his": "sein", "her": "ihr", "their": "ihr"}

UNITS = "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()  # noqa: SIM905
TEENS = {16: "sechzehn", 17: "siebzehn"}
TENS = "null zehn zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()  # noqa: SIM905
ENGLISH_UNITS = "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
ENGLISH_TEENS = {13: "thirteen", 15: "fifteen", 18: "eighteen"}
ENGLISH_TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905


def spaced(*words: str) -> str:
    """Words joined by spaces, without the empty ones."""
    return " ".join(word for word in words if word)


def german_number(n: int) -> str:
    """The German numeral of n, from 2 to 99. The unit comes first: 23 is dreiundzwanzig."""
    if n < 20:
        return UNITS[n] if n <= 12 else TEENS.get(n, f"{UNITS[n - 10]}zehn")
    return TENS[n // 10] if n % 10 == 0 else f"{UNITS[n % 10]}und{TENS[n // 10]}"


def english_number(n: int) -> str:
    """The English numeral of n, from 2 to 99."""
    if n < 20:
        return ENGLISH_UNITS[n] if n <= 12 else ENGLISH_TEENS.get(n, f"{ENGLISH_UNITS[n - 10]}teen")
    return ENGLISH_TENS[n // 10] if n % 10 == 0 else f"{ENGLISH_TENS[n // 10]}-{ENGLISH_UNITS[n % 10]}"


@dataclass(frozen=True)
class Phrase:
    """A noun with determiner, numeral and adjective. `determiner` is "the", a key of EIN_WORD, or empty."""

    noun: Noun
    determiner: str = ""
    plural: bool = False
    number: int = 0
    adjective: Adjective | None = None

    @property
    def key(self) -> str:
        """The row of the declension tables: m, f, n or p."""
        return "p" if self.plural else self.noun.gender

    @property
    def shows_case(self) -> bool:
        """Whether nominative and accusative differ: only in the masculine singular, and not in names."""
        return self.key == "m" and "name" not in self.noun.classes

    def german(self, case: int) -> str:
        """The phrase in a case: article, numeral, adjective, noun."""
        if self.determiner == "the":
            determiner, ending = ARTICLE[self.key][case], WEAK_ENDING[self.key][case]
        elif self.determiner:
            determiner = EIN_WORD[self.determiner] + EIN_ENDING[self.key][case]
            ending = MIXED_ENDING[self.key][case]
        else:
            determiner, ending = "", STRONG_PLURAL_ENDING[case]
        number = german_number(self.number) if self.number else ""
        adjective = self.adjective.german + ending if self.adjective else ""
        return spaced(determiner, number, adjective, self._german_noun(case))

    def _german_noun(self, case: int) -> str:
        """The form of the noun: -n in the dative plural, and the longer form of weak nouns."""
        if not self.plural:
            return self.noun.german_plural if self.noun.weak and case != NOMINATIVE else self.noun.german
        plural = self.noun.german_plural
        return plural + "n" if case == DATIVE and plural[-1] not in "ns" else plural

    def english(self) -> str:
        """The phrase in English, like "an old dog", "any apples", "the twenty-three red doors"."""
        number = english_number(self.number) if self.number else ""
        adjective = self.adjective.english if self.adjective else ""
        words = spaced(number, adjective, self.noun.english_plural if self.plural else self.noun.english)
        if self.determiner == "no" and self.plural:
            return f"any {words}"
        if self.determiner in ("a", "no"):
            return f"an {words}" if words[0] in "aeiou" else f"a {words}"
        return spaced(self.determiner, words)


@dataclass(frozen=True)
class Clause:
    """Who does what to whom. `subject` is the English subject; with `gefallen` it is the German dative."""

    verb: Verb
    tense: str
    subject: Phrase
    direct: Phrase | None = None
    recipient: Phrase | None = None
    place: Phrase | None = None
    directed: bool = False  # towards the place ("into"), not at it ("in")
    modal: Modal | None = None
    adverb: Adverb | None = None
    negated: bool = False

    @property
    def subject_case(self) -> int:
        return DATIVE if self.verb.kind == "experiencer" else NOMINATIVE

    @property
    def direct_case(self) -> int:
        return NOMINATIVE if self.verb.kind == "experiencer" else DATIVE if "dative" in self.verb.kind else ACCUSATIVE

    @property
    def case_shows_roles(self) -> bool:
        """Whether a form shows who does it to whom in any order: a dative, or a masculine singular."""
        if not self.direct or self.recipient or self.direct_case != ACCUSATIVE:
            return True
        return self.subject.shows_case or self.direct.shows_case

    @property
    def phrases(self) -> list[Phrase]:
        return [part for part in (self.subject, self.direct, self.recipient, self.place) if part]


def german_verb(clause: Clause) -> tuple[str, str]:
    """The finite verb, and the last word of the clause: a prefix, a participle or an infinitive."""
    verb = clause.verb
    agreeing = clause.direct if verb.kind == "experiencer" else clause.subject
    assert agreeing
    plural = agreeing.plural
    if clause.modal:
        return (clause.modal.infinitive if plural else clause.modal.singular), verb.prefix + verb.infinitive
    if clause.tense == "future":
        return ("werden" if plural else "wird"), verb.prefix + verb.infinitive
    if clause.tense == "perfect":
        forms = {"haben": ("hat", "haben"), "sein": ("ist", "sind")}
        return forms[verb.auxiliary][plural], verb.prefix + verb.participle
    return (verb.infinitive if plural else verb.singular), verb.prefix


def german_middle(clause: Clause, skipped: str) -> str:
    """The words after the subject: time, dative, accusative, nicht, place; without the part `skipped`."""
    adverb = clause.adverb.german if clause.adverb and skipped != "adverb" else ""
    recipient = clause.recipient.german(DATIVE) if clause.recipient and skipped != "recipient" else ""
    direct = clause.direct.german(clause.direct_case) if clause.direct and skipped != "direct" else ""
    with_kein = any(phrase.determiner == "no" for phrase in clause.phrases)
    nicht = "nicht" if clause.negated and not with_kein else ""
    return spaced(adverb, recipient, direct, nicht, german_place(clause))


def german_place(clause: Clause) -> str:
    """The place in German: im Garten, in den Garten, in Berlin, nach Berlin. Only the case separates in from into."""
    if not clause.place:
        return ""
    if "city" in clause.place.noun.classes:
        return f"{'nach' if clause.directed else 'in'} {clause.place.noun.german}"
    phrase = "in " + clause.place.german(ACCUSATIVE if clause.directed else DATIVE)
    return phrase.replace("in dem ", "im ").replace("in das ", "ins ")


def german_main(clause: Clause, front: str, skipped: str, subject_relative: str = "") -> str:
    """A main clause: `front` (empty in a question), the finite verb, all parts but `skipped`, which is in `front`."""
    finite, closing = german_verb(clause)
    subject = "" if skipped == "subject" else clause.subject.german(clause.subject_case) + subject_relative
    return spaced(front, finite, subject, german_middle(clause, skipped), closing)


def german_final(clause: Clause, opener: str, gap: str = "") -> str:
    """A clause with the verb last, after a conjunction, or after a relative pronoun that replaces the part `gap`."""
    finite, closing = german_verb(clause)
    subject = "" if gap == "subject" else clause.subject.german(clause.subject_case)
    together = closing + finite if clause.tense == "present" else spaced(closing, finite)
    return spaced(opener, subject, german_middle(clause, gap), together)


def third_person(verb: str) -> str:
    """An English verb in the third person singular: "looks for", "throws away", "goes"."""
    first, *rest = verb.split()
    if first == "have":
        return spaced("has", *rest)
    if first.endswith(("s", "sh", "ch", "x", "o")):
        return spaced(first + "es", *rest)
    if first.endswith("y") and first[-2] not in "aeiou":
        return spaced(first[:-1] + "ies", *rest)
    return spaced(first + "s", *rest)


def english_verb(clause: Clause, question: bool) -> tuple[str, str]:
    """The auxiliary (empty, do in a question or negation, or will, can, ...) and the rest of the verb."""
    base, plural = clause.verb.english, clause.subject.plural
    supported = clause.negated or question
    if clause.tense == "future":
        return "will", base
    if clause.tense == "perfect":
        return ("did", base) if supported else ("", clause.verb.english_past)
    if clause.modal and clause.modal.english in ("can", "should"):
        return clause.modal.english, base
    if clause.modal and clause.modal.english == "be allowed to":
        return ("are" if plural else "is"), f"allowed to {base}"
    base = spaced(clause.modal.english, base) if clause.modal else base
    if supported:
        return ("do" if plural else "does"), base
    return "", base if plural else third_person(base)


def english_clause(clause: Clause, question: bool = False, gap: str = "", front: str = "", **relatives: str) -> str:
    """The clause in English: subject, verb, object, recipient, place, time. A question starts with the auxiliary.

    gap: the part that a relative pronoun replaces. front: the part that is first in German; only an adverb is also
    first in English. relatives: relative clauses that follow the part "subject" or "direct".
    """
    auxiliary, verb = english_verb(clause, question)
    subject = "" if gap == "subject" else spaced(clause.subject.english(), relatives.get("subject", ""))
    opening = spaced(auxiliary, subject) if question else spaced(subject, auxiliary)
    direct = "" if gap == "direct" or not clause.direct else clause.direct.english()
    recipient = f"to {clause.recipient.english()}" if clause.recipient else ""
    objects = spaced(direct, relatives.get("direct", ""), recipient, english_place(clause))
    adverb = {english_adverb_place(clause, front): clause.adverb.english} if clause.adverb else {}
    negation, middle = "not" if clause.negated else "", adverb.get("middle", "")
    words = spaced(adverb.get("first", ""), opening, negation, middle, verb, objects, adverb.get("last", ""))
    return words.replace("can not", "cannot")


def english_place(clause: Clause) -> str:
    """The place in English: in the garden, into the garden, in Berlin, to Berlin."""
    if not clause.place:
        return ""
    whereto = "to" if "city" in clause.place.noun.classes else "into"
    return spaced(whereto if clause.directed else "in", clause.place.english())


def english_adverb_place(clause: Clause, front: str) -> str:
    """Where the adverb is in English: first, middle (before the verb) or last."""
    if front == "adverb":
        return "first"
    return "middle" if clause.adverb and clause.adverb.middle else "last"
