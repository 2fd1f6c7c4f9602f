"""Each knob has a type and a range; a mistake ends in one line with value, file, line and remedy."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import pytest

from pipeline.workflow.params import Params, check_value
from transformer.decoding.config import SearchConfig
from transformer.training.config import TrainConfig

TOY = (Path(__file__).parents[2] / "recipes/toy.yaml").read_text(encoding="utf-8")


def edited(folder: Path, **changes) -> Path:
    """A copy of the toy recipe in `folder`, with other values for some knobs."""
    lines = TOY.split("\n")
    for name, value in changes.items():
        lines[line_of(name) - 1] = f"{name}: {value}"
    path = folder / "params.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def line_of(name: str) -> int:
    """The number of a knob's line in the toy recipe, from 1."""
    return next(number for number, line in enumerate(TOY.split("\n"), 1) if line.startswith(f"{name}:"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("warmup", "abc", "warmup='abc' must be a valid integer"),
        ("warmup", "0", "warmup=0 must be greater than or equal to 1"),
        ("beam_size", "65", "beam_size=65 must be less than or equal to 64"),  # as for a request to a server
        ("dropout", "1.0", "dropout=1.0 must be less than 1"),
        ("dropout", ".nan", "dropout=nan must be a finite number"),
        ("d_model", "5", "d_model=5 must be a multiple of 2"),
        ("lowercase", "1", "lowercase=1 must be a valid boolean"),
        ("norm", "both", "norm='both' must be 'pre' or 'post'"),
    ],
)
def test_a_wrong_value_is_reported_with_its_line_and_a_remedy(tmp_path, name, value, message):
    path = edited(tmp_path, **{name: value})
    with pytest.raises(ValueError, match=message) as mistake:
        Params.load(path)
    text = str(mistake.value)
    assert text.startswith(f"{path}:{line_of(name)}: {name}=")
    assert text.endswith(f". Correct it, or run `git checkout HEAD -- {path}`, which discards all edits of the file.")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 100, "heads": 8}, "d_model=100 does not divide into heads=8"),
        (
            {"max_steps": 1201, "save_every": 100},
            r"max_steps=1201\. Change one of them, for example max_steps=1200 or 1300\. Correct",
        ),
        ({"log_every": 20, "save_every": 30}, "log_every=20 does not divide save_every=30"),
        ({"log_every": 10, "save_every": 5}, r"for example save_every=10\. Correct"),
        ({"back_translation_steps": 40}, "save_every=30 does not divide back_translation_steps=40"),
        ({"average_last": 50}, "average_last=50 exceeds keep=5"),
        ({"device_tokens": 100}, "device_tokens=100 cannot hold a sentence of max_length=100"),
        ({"test_sets": "a b a"}, "test_sets='a b a' must be different names"),
        ({"test_sets": "valid"}, "test_sets='valid' must be"),
        ({"test_sets": "train2"}, "test_sets='train2' must be"),
    ],
)
def test_values_that_exclude_each_other_are_refused(tmp_path, changes, message):
    path = edited(tmp_path, **changes)
    os.utime(path, (0, 0))
    with pytest.raises(ValueError, match=message):
        Params.load(path)
    assert path.stat().st_mtime > 0  # or git would take it for unchanged, see Params.load


def test_all_wrong_knobs_are_named_at_once(tmp_path):
    path = edited(tmp_path, max_steps=1_201, keep=3, average_last=5)
    with pytest.raises(ValueError, match=r"2 knobs are wrong\. .*max_steps=1201\..* average_last=5 exceeds keep=3\. C"):
        Params.load(path)
    path = edited(tmp_path, dropout="a", seed=-1)
    with pytest.raises(ValueError, match=r"2 knobs are wrong\. .*dropout='a' .*seed=-1 "):
        Params.load(path)


def test_a_missing_knob_and_an_unknown_knob_are_refused_by_name(tmp_path):
    path = edited(tmp_path)
    path.write_text(TOY.replace("warmup:", "warm_up:"), encoding="utf-8")
    with pytest.raises(
        ValueError, match=rf"params\.yaml:{line_of('warmup')}: unknown knob 'warm_up'.* Did you mean warmup"
    ):
        Params.load(path)
    path.write_text("\n".join(line for line in TOY.split("\n") if not line.startswith("warmup:")), encoding="utf-8")
    with pytest.raises(ValueError, match="warmup is missing"):
        Params.load(path)


def test_norwegian_and_small_numbers_are_read_as_dvc_writes_them(tmp_path):
    params = Params.load(edited(tmp_path, source="no", adam_epsilon="1e-9", lr_factor="2"))
    assert (params.source, params.adam_epsilon, params.lr_factor) == ("no", 1e-9, 2.0)
    assert isinstance(params.lr_factor, float)


def test_one_value_is_checked_without_a_file():
    assert (check_value("lr_factor", 2), check_value("norm", "post")) == (2.0, "post")
    with pytest.raises(ValueError, match="beam_size=0 must be greater than or equal to 1"):
        check_value("beam_size", 0)
    with pytest.raises(ValueError, match="unknown knob 'beams'"):
        check_value("beams", 4)


def test_params_give_checked_copies():
    params = Params.parse(TOY, "params.yaml")
    assert params.replace(seed=2).seed == 2
    with pytest.raises(ValueError, match=r"params\.yaml: seed=-1 must be"):
        params.replace(seed=-1)


def test_take_fills_a_config_with_the_knobs_of_its_fields():
    params = Params.parse(TOY, "params.yaml")
    search = params.take(SearchConfig, beam_size=9)
    assert (search.beam_size, search.length_penalty) == (9, params.length_penalty)
    assert asdict(params.take(TrainConfig)).items() <= vars(params).items()
