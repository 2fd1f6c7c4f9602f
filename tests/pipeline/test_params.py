"""Each knob has a type and a range; a mistake ends in one line with value, file, line and remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pytest

from pipeline.knobs import knob
from pipeline.params import Params
from transformer.decoding.config import SearchConfig
from transformer.training.config import TrainConfig

TOY = (Path(__file__).parents[2] / "recipes" / "toy.yaml").read_text(encoding="utf-8")


def edited(folder: Path, **changes) -> Path:
    """A copy of the toy recipe in `folder`, with other values for some knobs."""
    lines = TOY.split("\n")
    for name, value in changes.items():
        place = next(number for number, line in enumerate(lines) if line.startswith(f"{name}:"))
        lines[place] = f"{name}: {value}"
    path = folder / "params.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("warmup", "abc", "warmup='abc' must be a whole number >= 1"),
        ("warmup", "0", "warmup=0 must be a whole number >= 1"),
        ("warmup", "1.5", "warmup=1.5 must be a whole number >= 1"),
        ("warmup", "true", "warmup=True must be a whole number >= 1"),
        ("warmup", "", "warmup=None must be a whole number >= 1"),
        ("warmup", "[1, 2]", r"warmup=\[1, 2\] must be a whole number >= 1"),
        ("dropout", "1.0", "dropout=1.0 must be a number >= 0 and < 1"),
        ("dropout", "-0.1", "dropout=-0.1 must be"),
        ("dropout", ".nan", "dropout=nan must be"),
        ("lr_factor", "0", "lr_factor=0.0 must be a number > 0"),
        ("lr_factor", ".inf", "lr_factor=inf must be"),
        ("lowercase", "1", "lowercase=1 must be true or false"),
        ("norm", "both", "norm='both' must be one of pre, post"),
        ("corpus", "wmt", "corpus='wmt' must be one of toy, copy, multi30k, iwslt2017, wmt14, files"),
        ("source", "1", "source=1 must be a word"),
        ("seed", "-1", "seed=-1 must be"),
    ],
)
def test_a_wrong_value_is_reported_with_its_line_and_a_remedy(tmp_path, name, value, wanted):
    path = edited(tmp_path, **{name: value})
    line = next(number for number, text in enumerate(TOY.split("\n"), 1) if text.startswith(f"{name}:"))
    with pytest.raises(ValueError, match=wanted) as mistake:
        Params.load(path)
    assert str(mistake.value).startswith(f"{path}:{line}: ")
    assert "git checkout" in str(mistake.value)
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"d_model": 100, "heads": 8}, "d_model=100 does not divide into heads=8"),
        ({"d_model": 5, "heads": 5}, "d_model=5 must be even"),
        ({"max_steps": 1201, "save_every": 100}, "save_every=100 does not divide max_steps=1201"),
        ({"log_every": 20, "save_every": 30}, "log_every=20 does not divide save_every=30"),
        ({"back_translation_steps": 40}, "save_every=30 does not divide back_translation_steps=40"),
        ({"average_last": 50}, "average_last=50 exceeds keep="),
        ({"device_tokens": 100}, "device_tokens=100 cannot hold a sentence of max_length=100"),
    ],
)
def test_values_that_exclude_each_other_are_refused(tmp_path, changes, wanted):
    with pytest.raises(ValueError, match=wanted):
        Params.load(edited(tmp_path, **changes))


def test_a_missing_knob_and_an_unknown_knob_are_refused_by_name(tmp_path):
    path = edited(tmp_path)
    path.write_text(TOY.replace("warmup:", "warm_up:"), encoding="utf-8")
    with pytest.raises(ValueError, match="unknown knob 'warm_up'"):
        Params.load(path)
    path.write_text("\n".join(line for line in TOY.split("\n") if not line.startswith("warmup:")), encoding="utf-8")
    with pytest.raises(ValueError, match="warmup is missing"):
        Params.load(path)


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "", "a: 1\na: 2\n"])
def test_a_file_that_is_not_a_params_file_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"params\.yaml") as mistake:
        Params.load(path)
    assert "\n" not in str(mistake.value)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="cannot read the params"):
        Params.load(tmp_path / "params.yaml")


def test_norwegian_and_small_numbers_are_read_as_dvc_writes_them(tmp_path):
    params = Params.load(edited(tmp_path, source="no", adam_epsilon="1e-9", lr_factor="2"))
    assert (params.source, params.adam_epsilon, params.lr_factor) == ("no", 1e-9, 2.0)
    assert isinstance(params.lr_factor, float)


def test_take_fills_a_config_with_the_knobs_of_its_fields():
    params = Params.load(Path(__file__).parents[2] / "params.yaml")
    search = params.take(SearchConfig, beam_size=9)
    assert (search.beam_size, search.length_penalty) == (9, params.length_penalty)
    training = params.take(TrainConfig)
    assert all(getattr(params, name) == value for name, value in asdict(training).items())


@dataclass(frozen=True)
class Later(Params):
    """Params of a later version: one knob was added, and one was renamed."""

    warmup: int = knob(least=1, formerly="rise")
    coverage: float = knob(least=0, before=0.0)


def test_a_recorded_file_is_read_with_the_values_and_names_from_before_a_knob():
    older = TOY.replace("warmup:", "rise:")
    recorded = Later.parse(older, "params.yaml", recorded=True)
    assert (recorded.warmup, recorded.coverage) == (Params.parse(TOY, "params.yaml").warmup, 0.0)
    with pytest.raises(ValueError, match=r"unknown knob 'rise'\. It is called warmup now"):
        Later.parse(older, "params.yaml")
    with pytest.raises(ValueError, match="coverage is missing"):
        Later.parse(TOY, "params.yaml")


def test_a_knob_at_its_value_from_before_and_a_renamed_one_change_no_key():
    values = vars(Later.parse(TOY, "params.yaml", recorded=True))
    older = vars(Params.parse(TOY, "params.yaml"))
    added = {one.name for one in fields(Params) if one.metadata["before"] is not None}  # later than others
    wanted = {("rise" if name == "warmup" else name): value for name, value in older.items() if name not in added}
    assert Later.for_keys(values) == wanted
    assert Later.for_keys({**values, "coverage": 0.5}) == {**wanted, "coverage": 0.5}
    assert Params.for_keys(older) == {name: value for name, value in older.items() if name not in added}
