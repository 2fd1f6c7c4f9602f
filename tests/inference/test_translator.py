"""The translator, called from a program: translations, alternatives, samples, scores, ensembles, damaged folders."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from safetensors.torch import load_file, save_file
from support.tiny import TEXT, model_folder

from transformer.decoding.hypothesis import Hypothesis
from transformer.inference.save_model import save_model
from transformer.inference.translator import Translator
from transformer.model.transformer import ROWS
from transformer.model.weights import load_model
from transformer.text.bpe import Merges
from transformer.text.marks import SPACE
from transformer.text.placeholders import NUMBERS
from transformer.text.vocabulary import SPECIALS, Vocabulary
from transformer.text.words import Side, splitter_of


def test_each_line_is_translated_and_an_empty_line_stays_empty(translator):
    lines = [TEXT[0], "", " \t ", TEXT[1]]
    translations = translator.translate(lines, beam_size=2, extra_length=5)
    assert translations[1:3] == ["", ""]
    assert translations == [translator.translate([line], beam_size=2, extra_length=5)[0] for line in lines]
    assert translator.translate([]) == []


@pytest.mark.parametrize("lines", [["Ein Hund. Ein Mann. Zwei.", "", TEXT[1]], ["", " "], [], ["Ein. Ein."] * 3])
def test_progress_counts_lines_whatever_their_sentences(translator, lines):
    done: list[int] = []
    translator.translate(lines, progress=done.append, extra_length=1)
    assert sum(done) == len(lines)


def test_a_line_break_in_a_line_is_one_in_its_translation(translator):
    first, second = translator.translate(TEXT[:2], extra_length=5)
    assert translator.translate([f"{TEXT[0]}\n\n{TEXT[1]}"], extra_length=5) == [f"{first}\n\n{second}"]


def test_equal_lines_are_searched_once(translator, monkeypatch):
    searched, search, done = [], translator.engine.search, []
    monkeypatch.setattr(translator.engine, "search", lambda ids, **how: searched.append(len(ids)) or search(ids, **how))
    lines = [TEXT[0], TEXT[1], *[TEXT[0]] * 50]
    assert len(set(translator.translate(lines, extra_length=1, progress=done.append))) <= 2
    assert max(searched) == 2
    assert sum(done) == 52


def test_a_model_of_numbers_gets_lines_without_letters():
    sides = [Side(code, lowercase=False) for code in ("de", "en")]
    numbers = Translator(Backwards(), Merges("#version: 0.2\n"), Vocabulary([*SPECIALS, "▁1", "▁2"]), *sides)  # type: ignore[arg-type]
    assert numbers.translate(["1 2"]) == ["2 1"]


@pytest.mark.parametrize("loops", [True, False])
def test_a_translation_that_is_empty_or_repeats_itself_is_searched_again(translator, monkeypatch, loops):
    word = next(
        number
        for number, each in enumerate(translator.vocabulary.subwords)
        if len(each) > 1 and each[0] == SPACE and each[1:].isalpha()
    )
    wrong = [word] * 3 * loops

    def search(sources, config, **how):
        found = [wrong, [word]] if config.beam_size >= 32 else [wrong]
        return [[Hypothesis(tuple(ids), -1.0, -1.0) for ids in found] for _ in sources]

    monkeypatch.setattr(translator.engine, "search", search)
    every = translator.alternatives(["Hund", "Hund" * 101])  # a long line would cost too much
    assert [len(best[0].subwords) for best in every] == [1, len(wrong)]


def test_half_a_character_is_refused_with_its_place(translator):
    with pytest.raises(ValueError, match=r"line 2, character 3: '\\ud800' is half a character"):
        translator.translate(["Hund", "ab\ud800"])


def test_lines_may_come_from_an_iterator(translator):
    assert translator.translate(iter(TEXT), extra_length=5) == translator.translate(TEXT, extra_length=5)
    assert translator.sample(iter(TEXT), extra_length=5) == translator.sample(TEXT, extra_length=5)
    assert translator.score(iter(TEXT), iter(TEXT)) == translator.score(TEXT, TEXT)


@pytest.mark.parametrize("language", ["de-AT", "zh"])
def test_a_saved_model_translates_as_before(translator, tmp_path, language):
    source = Side(language, lowercase=True, splitter=splitter_of(language)[0])
    saved = Translator(translator.engine, translator.merges, translator.vocabulary, source, translator.target)
    model = translator.engine.models[0]
    for _ in range(2):  # the second time, the folder is replaced
        save_model(str(tmp_path / "m"), model.train(), saved.merges, saved.vocabulary, source, saved.target)
    loaded = Translator.load(tmp_path / "m")
    assert loaded.alternatives(TEXT, extra_length=5) == saved.alternatives(TEXT, extra_length=5)
    assert loaded.engine.models[0].config == model.config
    assert vars(loaded.source).items() >= {"language": language, "lowercase": True, "splitter": source.splitter}.items()
    with pytest.raises(ValueError, match=r"The vocabulary has 4 subwords, the model has \d+\. Nothing was saved\."):
        save_model(tmp_path / "n", model, saved.merges, Vocabulary(SPECIALS), source, saved.target)
    (tmp_path / "m/thesis.tex").touch()
    with pytest.raises(ValueError, match=r"m would be replaced, and has thesis\.tex\. Nothing was written\."):
        save_model(tmp_path / "m", model, saved.merges, saved.vocabulary, source, saved.target)
    assert load_model(str(tmp_path / "m")).config == model.config


@pytest.mark.parametrize("lines", ["Hund", None, 7, [None], [b"Hund"], [["Hund"]]])
def test_what_is_no_list_of_strings_is_refused(translator, lines):
    for call in (translator.translate, translator.sample, lambda lines: translator.score(lines, lines)):
        with pytest.raises(TypeError, match="Give a list of lines"):
            call(lines)


def test_several_folders_are_an_ensemble(folder, translator, tmp_path):
    both = Translator.load(folder, model_folder(tmp_path / "other", seed=8))
    assert both.translate(TEXT, extra_length=4) != translator.translate(TEXT, extra_length=4)
    same = Translator.load(folder, folder).translate(TEXT, extra_length=4)
    assert same == translator.translate(TEXT, extra_length=4)
    with pytest.raises(ValueError, match="another vocabulary"):
        Translator.load(folder, model_folder(tmp_path / "third", merges=5))


@pytest.mark.parametrize(
    ("name", "value"),
    [("source", "fr"), ("lowercase", True), ("lowercase_source", True), ("normalise", "none"), ("placeholders", True)],
)
def test_models_of_other_languages_or_case_are_no_ensemble(folder, tmp_path, name, value):
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    contents = json.loads((other / "model.json").read_text())
    (other / "model.json").write_text(json.dumps(contents | {name: value}))
    with pytest.raises(ValueError, match=f"^{other} cannot be in an ensemble with {folder}: {name} is {value}"):
        Translator.load(folder, other)


class Backwards:
    """An engine whose translation is the source's subwords in the opposite order. It keeps what it scored."""

    def search(self, sources, config, progress, before_step):
        return [[Hypothesis(tuple(reversed(source)), 0.0, 0.0)] for source in sources]

    def sample(self, sources, config, progress):
        return self.search(sources, config, progress, None)

    def score(self, sources, targets, progress):
        self.scored = sources, targets
        return []


@pytest.fixture
def protecting() -> Translator:
    """A translator of a word-level model with placeholders."""
    vocabulary = Vocabulary([*SPECIALS, SPACE, *NUMBERS, "▁von", "▁x", "▁%", "s"])
    sides = [Side(code, lowercase=False, placeholders=True) for code in ("de", "en")]
    return Translator(Backwards(), Merges("#version: 0.2\n"), vocabulary, *sides)  # type: ignore[arg-type]


def test_a_translation_gets_the_placeholders_of_its_source(protecting):
    assert protecting.translate(["%s von {Name}", "x", ""]) == ["{Name}  von%s", "x", ""]
    assert protecting.sample(["%s x"])[0][0].text == "x%s"
    (pair,) = protecting.translate_sentences(["%s von {Name}"])[0]
    assert pair.translation.subwords == ("②", "▁", "▁von", "①", "▁")
    source, target = "%s {a}", "{a} %s {b}"
    sides = protecting.source.protect(source), protecting.source.protect_target(source, target)
    assert protecting.split_by_word(sides[0], protecting.source) == [["▁"], ["①"], ["▁"], ["②"]]
    assert protecting.split_by_word(sides[1], protecting.target)[:4] == [["▁"], ["②"], ["▁"], ["①"]]


def test_a_line_without_a_letter_is_its_own_translation(protecting):
    """And what frames a line stays around its translation."""
    lines = ["12", "—", "%s", "(2)", "3.14", "<br/>", ""]
    search, protecting.engine.search = protecting.engine.search, lambda *_, **more: pytest.fail("searched")
    assert protecting.translate(lines) == lines
    assert [(each.text, each.log_probability) for each in protecting.alternatives(["12"])[0]] == [("12", 0.0)]
    protecting.engine.search = search
    assert protecting.sample(["(x von)"])[0][0].text == "(von x)"
    assert protecting.translate(["- x von", "„x von“", "3) x von\n\n12"]) == ["- von x", "„von x“", "3) von x\n\n12"]


def test_a_line_whose_best_translation_loses_a_placeholder_is_searched_again_more_widely(protecting):
    losing, wide = [["▁x"], ["▁von"]], [["▁x"], ["▁von"], ["▁von", "▁", "①"], ["▁x", "▁", "①"]]

    def search(sources, config, **how):
        found = wide if config.beam_size > 4 else losing
        return [[Hypothesis(tuple(protecting.vocabulary.ids(some)), 0.0, 0.0) for some in found] for _ in sources]

    protecting.engine.search = search
    assert protecting.translate(["x %s", "x"], beam_size=2) == ["von %s", "x"]
    assert [one.text for one in protecting.alternatives(["x %s"], beam_size=2)[0]] == ["von %s", "x"]
    losing[1:] = [["▁von", "▁", "①"]]  # which both searches find
    assert [one.text for one in protecting.alternatives(["x %s"], beam_size=3)[0]] == ["von %s", "x"]
    losing[1:], wide[2:] = [["▁von"]], []
    assert protecting.translate(["x %s"], beam_size=2) == ["x"]
    protecting.source.placeholders = False
    assert protecting.translate(["x %s"], beam_size=2) == ["x"]


def test_a_pair_is_scored_with_the_numbers_that_training_gave_it(protecting):
    protecting.score(["%s von {a}", "%s"], ["{a} %s", "x"])
    ids = protecting.vocabulary.ids
    assert protecting.engine.scored == (
        [ids(["▁", "①", "▁von", "▁", "②"]), ids(["▁%", "s"])],
        [ids(["▁", "②", "▁", "①"]), ids(["▁x"])],
    )


def test_score_is_the_log_probability_of_the_search(translator):
    (best,) = translator.alternatives([TEXT[0]], beam_size=8, extra_length=40)
    # score cuts the text into subwords again, which gives the subwords of the search for some translations only
    same = [each for each in best if translator.subwords([each.text], translator.target) == [list(each.subwords)]]
    scores = translator.score([TEXT[0]] * len(same), [translation.text for translation in same])
    for translation, steps in zip(same, scores, strict=True):
        assert sum(steps) == pytest.approx(translation.log_probability, abs=1e-4)
    with pytest.raises(ValueError, match="2 sources and 1 targets"):
        translator.score(["a", "b"], ["c"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.json", '{"format": 2}', "model.json: format 2 is not 1"),
        ("model.json", '{"format": 1}', "model.json: damaged (no lowercase, lowercase_source, sizes"),
        ("model.json", "[1]", "model.json: damaged (it is no object)"),
        ("model.json", "[" * 100_000, "model.json: damaged (maximum recursion depth"),
        ("model.json", " " * (1 << 26), "model.json has 67,108,864 bytes, more than 33,554,432"),
        ("bpe.codes", "#version: 0.2\nab", "bpe.codes is damaged: another version, or a line that is no merge"),
        ("bpe.codes", "#version: 0.1\na b\n", "bpe.codes is damaged: another version, or a line that is no merge"),
        ("vocab.txt", "<pad>\n<unk>\n<s>\n</s>\na\na\n", "vocab.txt: The subword 'a' is in the vocabulary twice"),
    ],
)
def test_a_damaged_file_of_a_model_folder_is_named(tmp_path, name, content, message, capsys):
    folder = model_folder(tmp_path / "model")
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        Translator.load(folder)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lowercase", 1, "lowercase=1 must be true or false"),
        ("source", None, "source=None must be a text"),
        ("source", "de.x", "'de.x' is no language code"),
        ("sizes", [], "sizes=[] must be an object"),
        ("sizes.layers", 10**9, "layers=1000000000 must be a whole number, at least 1, at most 1,000"),
        ("sizes.width", 8, "sizes: 'width' is unknown"),
    ],
)
def test_model_json_is_checked_as_params_yaml_is(folder, tmp_path, name, value, message):
    shutil.copytree(folder, tmp_path / "model")
    contents = json.loads((folder / "model.json").read_text())
    part, _, size = name.partition(".")
    contents[part] = contents[part] | {size: value} if size else value
    (tmp_path / "model/model.json").write_text(json.dumps(contents))
    with pytest.raises(ValueError, match=re.escape(message)) as mistake:
        Translator.load(tmp_path / "model")
    assert len(str(mistake.value)) < 400


def test_a_long_table_of_positions_is_not_made_in_advance(folder, tmp_path):
    """Its rows are no weights, so that no size in the file of the weights limits it."""
    shutil.copytree(folder, tmp_path / "model")
    contents = json.loads((folder / "model.json").read_text())
    contents["sizes"]["max_positions"] = 10**9
    (tmp_path / "model/model.json").write_text(json.dumps(contents))
    assert load_model(tmp_path / "model").sinusoids.shape[0] == ROWS


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_weights_that_are_no_numbers_are_refused(folder, tmp_path, value):
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model/weights.safetensors"
    weights = load_file(path)
    name = min(weights)
    weights = {each: tensor.int() for each, tensor in weights.items()} if value is None else weights
    weights[name].view(-1)[-1] = value or 0
    save_file(weights, path)
    with pytest.raises(ValueError, match=f"'{name}' has values that are no finite numbers"):
        Translator.load(tmp_path / "model")


def test_an_overflow_of_the_model_is_an_error(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model/weights.safetensors"
    weights = load_file(path)
    weights["decoder.0.feed_forward.inner.weight"][0, 0] = 1e38
    save_file(weights, path)
    translator = Translator.load(tmp_path / "model")
    for call in (translator.translate, translator.sample):
        with pytest.raises(ValueError, match=r"The model gives no numbers as probabilities\."):
            call([TEXT[0]], extra_length=2)
