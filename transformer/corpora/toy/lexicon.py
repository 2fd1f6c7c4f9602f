"""The words of the built-in corpus: German forms, English forms, and which words can be combined.

Each table has one word per row. In a cell, `_` is a space, `-` is an empty cell, and commas separate the classes of a
word. No two German words have the same English word, except `essen` and `fressen`, whose subjects differ.
"""

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun or a name. `classes` decide which verbs can have it as subject or object, and which adjectives fit."""

    german: str
    gender: str  # m, f, n
    german_plural: str
    weak: bool  # der Junge, den Jungen: in the singular, all cases but the nominative equal the plural
    english: str
    english_plural: str
    classes: tuple[str, ...]
    compound: bool = False


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective. `german` is the stem, to which endings are added."""

    german: str
    english: str
    classes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in the third person. The German plural equals the infinitive. A prefix is separable."""

    kind: str  # number and case of the objects; with "dative" in it, the only object is a dative
    prefix: str
    infinitive: str
    singular: str
    participle: str
    auxiliary: str  # haben, sein
    english: str
    english_past: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]  # classes of the object or place; for a report: perfect, if that tense is allowed


@dataclass(frozen=True)
class Modal:
    """A modal verb. Of the English ones, only "have to" and "want to" need do-support."""

    singular: str
    infinitive: str
    english: str


@dataclass(frozen=True)
class Adverb:
    """An adverbial of time. `negatable`: a negated clause with it has one reading."""

    german: str
    english: str
    tenses: tuple[str, ...]
    middle: bool = False  # before the English verb ("often"), not at the end of the clause
    negatable: bool = True
    number: bool = False  # contains a numeral


NOUN_TABLE = """
Mann      m  Männer     -     man       men         person,adult
Frau      f  Frauen     -     woman     women       person,adult
Kind      n  Kinder     -     child     children    person
Junge     m  Jungen     weak  boy       boys        person
Mädchen   n  Mädchen    -     girl      girls       person
Lehrerin  f  Lehrerinnen -    teacher   teachers    person,adult
Arzt      m  Ärzte      -     doctor    doctors     person,adult
Nachbar   m  Nachbarn   weak  neighbour neighbours  person,adult
Bruder    m  Brüder     -     brother   brothers    person,kin
Schwester f  Schwestern -     sister    sisters     person,kin
Vater     m  Väter      -     father    fathers     person,kin
Mutter    f  Mütter     -     mother    mothers     person,kin
Hund      m  Hunde      -     dog       dogs        animal,owned
Katze     f  Katzen     -     cat       cats        animal,owned
Pferd     n  Pferde     -     horse     horses      animal,owned
Bär       m  Bären      weak  bear      bears       animal
Apfel     m  Äpfel      -     apple     apples      food,owned
Birne     f  Birnen     -     pear      pears       food,owned
Ei        n  Eier       -     egg       eggs        food,owned
Kuchen    m  Kuchen     -     cake      cakes       food,owned
Buch      n  Bücher     -     book      books       portable,owned
Brief     m  Briefe     -     letter    letters     portable,owned
Ball      m  Bälle      -     ball      balls       portable,owned
Koffer    m  Koffer     -     suitcase  suitcases   portable,opening,owned
Tasche    f  Taschen    -     bag       bags        portable,opening,owned
Hut       m  Hüte       -     hat       hats        portable,owned
Auto      n  Autos      -     car       cars        device,owned
Fahrrad   n  Fahrräder  -     bicycle   bicycles    device,owned
Tür       f  Türen      -     door      doors       fixture,opening,head
Fenster   n  Fenster    -     window    windows     fixture,opening,head
Schrank   m  Schränke   -     cupboard  cupboards   device,opening,head
Tisch     m  Tische     -     table     tables      device,owned,head
Stuhl     m  Stühle     -     chair     chairs      device,portable,owned,head
Lampe     f  Lampen     -     lamp      lamps       device,portable,owned,head
Uhr       f  Uhren      -     clock     clocks      device,portable,owned,head
Schlüssel m  Schlüssel  -     key       keys        portable,owned,head
Garten    m  Gärten     -     garden    gardens     place
Wald      m  Wälder     -     forest    forests     place
Park      m  Parks      -     park      parks       place
Küche     f  Küchen     -     kitchen   kitchens    place
Schule    f  Schulen    -     school    schools     place
Haus      n  Häuser     -     house     houses      place
Büro      n  Büros      -     office    offices     place
"""

# Every modifier combines with every noun of class "head": Küche + Tür = Küchentür, kitchen door.
MODIFIER_TABLE = """
Küchen kitchen
Garten garden
Schul school
Büro office
Museums museum
Schlafzimmer bedroom
Wohnzimmer living_room
"""

NAMES = {"f": ("Anna", "Maria", "Lena", "Sophie"), "m": ("Paul", "Peter", "Max", "Jonas")}

CITIES = {"Berlin": "Berlin", "Hamburg": "Hamburg", "München": "Munich", "Köln": "Cologne", "Wien": "Vienna"}

ADJECTIVE_TABLE = """
alt        old        adult,animal,portable,device,fixture,place
jung       young      adult,animal
klein      small      person,animal,food,portable,device,fixture,place
groß       tall       person
groß       big        animal,food,portable,device,fixture,place
freundlich friendly   person,animal
müd        tired      person,animal
neu        new        portable,device,fixture,place
schön      beautiful  portable,device,place
teur       expensive  portable,device
rot        red        portable,device,fixture
schwarz    black      portable,device
frisch     fresh      food
süß        sweet      food
"""

# kind, prefix, infinitive, singular, participle, auxiliary | English infinitive, past | subjects, objects
VERB_TABLE = """
transitive - sehen sieht gesehen haben see saw person,animal person,animal,portable,device
transitive - kaufen kauft gekauft haben buy bought person food,portable,device
transitive - suchen sucht gesucht haben look_for looked_for person,animal person,animal,portable
transitive - finden findet gefunden haben find found person,animal person,animal,portable
transitive - essen isst gegessen haben eat ate person food
transitive - fressen frisst gefressen haben eat ate animal food
transitive - reparieren repariert repariert haben repair repaired person device,fixture
transitive - fotografieren fotografiert fotografiert haben photograph photographed person person,animal,device,fixture
transitive - besuchen besucht besucht haben visit visited person person
transitive - vergessen vergisst vergessen haben forget forgot person portable
separable an rufen ruft gerufen haben call called person person
separable ein laden lädt geladen haben invite invited person person
separable ab holen holt geholt haben pick_up picked_up person person,portable
separable auf machen macht gemacht haben open opened person opening
separable zu machen macht gemacht haben close closed person opening
separable mit bringen bringt gebracht haben bring_along brought_along person food,portable
separable weg werfen wirft geworfen haben throw_away threw_away person food,portable
separable_dative zu hören hört gehört haben listen_to listened_to person,animal person
dative - helfen hilft geholfen haben help helped person,animal person,animal
dative - danken dankt gedankt haben thank thanked person person
dative - folgen folgt gefolgt sein follow followed person,animal person,animal
dative - antworten antwortet geantwortet haben answer answered person person
ditransitive - geben gibt gegeben haben give gave person food,portable
ditransitive - zeigen zeigt gezeigt haben show showed person portable,device
ditransitive - schicken schickt geschickt haben send sent person portable
ditransitive - leihen leiht geliehen haben lend lent person portable,device
experiencer - gefallen gefällt gefallen haben like liked person portable,device,fixture
experiencer - fehlen fehlt gefehlt haben miss missed person,animal person,animal
experiencer - schmecken schmeckt geschmeckt haben enjoy enjoyed person,animal food
place - schlafen schläft geschlafen haben sleep slept person,animal static,place
place - arbeiten arbeitet gearbeitet haben work worked person static,city,place
place - spielen spielt gespielt haben play played person,animal static,place
place - warten wartet gewartet haben wait waited person,animal static,city,place
place - singen singt gesungen haben sing sang person static,city,place
place - laufen läuft gelaufen sein run ran person,animal static,direction,place
place - gehen geht gegangen sein go went person,animal direction,place
place - fahren fährt gefahren sein drive drove person direction,city
bare - schlafen schläft geschlafen haben sleep slept person,animal -
bare - singen singt gesungen haben sing sang person -
bare - arbeiten arbeitet gearbeitet haben work worked person -
bare ein schlafen schläft geschlafen sein fall_asleep fell_asleep person,animal -
bare weg laufen läuft gelaufen sein run_away ran_away person,animal -
bare zurück kommen kommt gekommen sein come_back came_back person,animal -
report - sagen sagt gesagt haben say said person perfect
report - schreiben schreibt geschrieben haben write wrote person perfect
report - glauben glaubt geglaubt haben believe believed person -
report - wissen weiß gewusst haben know knew person -
"""

MODALS = (
    Modal("kann", "können", "can"),
    Modal("soll", "sollen", "should"),
    Modal("muss", "müssen", "have to"),
    Modal("will", "wollen", "want to"),
    Modal("darf", "dürfen", "be allowed to"),
)

ADVERBS = (
    Adverb("oft", "often", ("present",), middle=True, negatable=False),
    Adverb("manchmal", "sometimes", ("present",), middle=True, negatable=False),
    Adverb("jeden Tag", "every day", ("present",), negatable=False),
    Adverb("im Sommer", "in summer", ("present",)),
    Adverb("gestern", "yesterday", ("perfect",)),
    Adverb("heute Morgen", "this morning", ("perfect",)),
    Adverb("letzte Woche", "last week", ("perfect",)),
    Adverb("heute", "today", ("modal", "future")),
    Adverb("morgen", "tomorrow", ("modal", "future")),
    Adverb("bald", "soon", ("future",), negatable=False),
    Adverb("am Montag", "on Monday", ("present", "perfect", "modal", "future")),
    Adverb("am Freitag", "on Friday", ("present", "perfect", "modal", "future")),
)


def rows(table: str) -> list[list[str]]:
    """The cells of each row of a table, with `_` replaced by a space and `-` by nothing."""
    lines = table.strip().split("\n")
    return [["" if cell == "-" else cell.replace("_", " ") for cell in line.split()] for line in lines]


def compound(german: str, english: str, head: Noun) -> Noun:
    """The compound of two nouns, with gender and plural of the head: Küchen + Tür = Küchentür, kitchen door."""
    singular, plural = german + head.german.lower(), german + head.german_plural.lower()
    translations = f"{english} {head.english}", f"{english} {head.english_plural}"
    return Noun(singular, head.gender, plural, head.weak, *translations, head.classes, compound=True)


def classes(cell: str) -> tuple[str, ...]:
    """The classes in a cell, separated by commas."""
    return tuple(cell.split(",")) if cell else ()


NOUNS = tuple(Noun(g, x, gs, weak == "weak", e, es, classes(c)) for g, x, gs, weak, e, es, c in rows(NOUN_TABLE))
HEADS = [noun for noun in NOUNS if "head" in noun.classes]
COMPOUNDS = {head.german: [compound(g, e, head) for g, e in rows(MODIFIER_TABLE)] for head in HEADS}
PEOPLE = tuple(Noun(n, gender, "", False, n, "", ("person", "name")) for gender, names in NAMES.items() for n in names)
TOWNS = tuple(Noun(german, "n", "", False, english, "", ("city", "name")) for german, english in CITIES.items())
ADJECTIVES = tuple(Adjective(german, english, classes(c)) for german, english, c in rows(ADJECTIVE_TABLE))
VERBS = tuple(
    Verb(kind, prefix, base, singular, participle, auxiliary, english, past, classes(subjects), classes(objects))
    for kind, prefix, base, singular, participle, auxiliary, english, past, subjects, objects in rows(VERB_TABLE)
)
