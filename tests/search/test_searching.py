"""The search for good knobs: what it proposes, prunes and refuses, and what its finals compare."""

from __future__ import annotations

import argparse
import itertools
import json
import re
from math import log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.projects import commit_all
from support.tiny import ROOT

from pipeline.search import trainings as trainings_module
from pipeline.search.clones import check_committed
from pipeline.search.command import name_of
from pipeline.search.finals import DIVERGED, conclusion, finals, table
from pipeline.search.space import describe, space_of
from pipeline.search.study import best_knobs, open_study, rungs_of, search
from pipeline.search.trainings import Trainings, score_of
from pipeline.workflow.params import Params
from pipeline.workflow.stage import END
from transformer.evaluation.comparison import System
from transformer.files import Mistake, Untrainable

DVC = ROOT / "dvc.yaml"
PARAMS = Params.load(ROOT / "params.yaml")
RUNGS = [60, 180, 600]
WORDS = ["warmup=50..8000", "dropout=0.0..0.5", "norm=pre,post"]
SPACE = space_of(WORDS, PARAMS, DVC)


def bleu(knobs: Any, updates: int) -> float:
    """The BLEU of an invented training: 40 at the end for warmup 400, dropout 0.1 and norm pre, else lower."""
    distance = abs(log(knobs["warmup"] / 400)) + 8 * abs(knobs["dropout"] - 0.1)
    return 40 / (1 + distance + (knobs["norm"] == "post")) * (updates / RUNGS[-1]) ** 0.5


KILL = SystemExit()  # of which Optuna notes nothing, as of SIGKILL


def measured(calls: list, ends_at: int = 0, error: BaseException = KILL):
    """Invented trainings that note each call; ends_at: the call in which an error ends the search."""

    def measure(knobs, rungs):
        for updates in rungs:
            calls.append((tuple(knobs.items()), updates))
            if len(calls) == ends_at:
                raise error
            yield bleu(knobs, updates)

    return measure


def opened(folder: Path, seed: int = 1) -> optuna.Study:
    folder.mkdir(exist_ok=True)
    return open_study(folder, seed, RUNGS)


def test_most_trials_are_stopped_early(tmp_path):
    calls, study = [], opened(tmp_path / "search")
    search(study, SPACE, RUNGS, measured(calls), 30)
    trained = [sum(updates == rung for _, updates in calls) for rung in RUNGS]
    assert trained[0] == 30 > 20 > trained[1] > trained[2]
    assert [trial.state.name for trial in study.get_trials()].count("COMPLETE") == trained[2]
    search(study, SPACE, RUNGS, measured(calls), 30)
    assert len(calls) == sum(trained)


def test_a_search_that_goes_on_proposes_nothing_twice(tmp_path):
    calls: list = []
    for count in (5, 9):  # Optuna's first ten are drawn at random
        search(opened(tmp_path / "search"), SPACE, RUNGS, measured(calls), count)
    proposed = [knobs for knobs, updates in calls if updates == RUNGS[0]]
    assert len(set(proposed)) == len(proposed) == 9


def test_scores_of_diverging_trials_keep_their_order():
    """The loss decides below a BLEU that says something, and any such BLEU is better."""
    scores = [score_of(0.0, 9.0), score_of(0.9, 5.0), score_of(0.0, 4.0), score_of(1.0, 99.0), score_of(2.0, 99.0)]
    assert scores == sorted(scores)
    assert len(set(scores)) == len(scores)


@pytest.mark.parametrize("error", [KILL, Mistake("no network")])
@pytest.mark.parametrize("ends_at", [1, 4, 18])
def test_a_search_that_was_ended_goes_on_with_the_same_trial(tmp_path, ends_at, error):
    before, after = [], []
    with pytest.raises(type(error)):
        search(opened(tmp_path / "search"), SPACE, RUNGS, measured(before, ends_at, error), 12)
    search(opened(tmp_path / "search"), SPACE, RUNGS, measured(after), 12)
    assert after[0][0] == before[-1][0]
    states = [trial.state.name for trial in opened(tmp_path / "search").get_trials()]
    assert (states.count("RUNNING"), len(states) - states.count("FAIL")) == (0, 12)


def test_finalists_differ(tmp_path):
    study, space = opened(tmp_path / "search"), space_of(["norm=pre,post", "heads=2,4"], PARAMS, DVC)
    search(study, space, RUNGS, lambda knobs, rungs: (knobs["heads"] * updates / 100 for updates in rungs), 15)
    finalists = [str(knobs) for knobs in best_knobs(study, 3)]
    assert len(set(finalists)) == len(finalists)
    assert "'heads': 4" in finalists[0]


def test_knobs_that_cannot_be_trained_with_are_pruned(tmp_path):
    def fail(knobs, rungs):
        raise Untrainable("diverged")
        yield

    study = opened(tmp_path / "search")
    search(study, SPACE, RUNGS, fail, 3)
    assert [trial.state.name for trial in study.get_trials()] == ["PRUNED"] * 3
    assert not best_knobs(study, 2)


def test_trainings_get_numbers_of_four_digits(tmp_path):
    calls, space = [], space_of(["warmup=50..8000", "lr_factor=0.123456..0.9"], PARAMS, DVC)

    def measure(knobs, rungs):
        calls.append(knobs)
        yield from (knobs["lr_factor"] for _ in rungs)

    study = opened(tmp_path / "search")
    search(study, space, RUNGS, measure, 15)  # learns from the 10th
    for knobs in [*calls, *best_knobs(study, 3)]:
        assert isinstance(knobs["warmup"], int)
        assert knobs["lr_factor"] == float(f"{knobs['lr_factor']:.4g}")


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("warmup=500..8000", "warmup: 500 to 8000, log scale"),
        ("warmup=500..5000", "warmup: 500 to 5000, log scale"),
        ("warmup=500..4999", "warmup: 500 to 4999, linear scale"),
        ("warmup=500..800:log", "warmup: 500 to 800, log scale"),
        ("lr_factor=1e-2..10:linear", "lr_factor: 0.01 to 10.0, linear scale"),
        ("heads=2,4,8", "heads: 2, 4, 8"),
    ],
)
def test_a_word_is_a_range_or_choices(word, shown):
    ((knob, values),) = space_of([word], PARAMS, DVC).items()
    assert describe(knob, values) == shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("warmup", "'warmup' must be a knob and its values, as warmup=500..8000 or norm=pre,post."),
        ("warm_up=1..2", "warm_up=1..2: unknown knob 'warm_up'. params.yaml lists the knobs."),
        ("warmup=8000..500", "warmup=8000..500: a range is two numbers, the smaller first, as in 500..8000."),
        ("warmup=0..8000", "warmup=0..8000: warmup cannot be 0 (params.yaml). Give a range such as 500..8000"),
        ("norm=pre,past", "norm cannot be past"),
        ("dropout=0..0.4:log", "dropout=0..0.4:log: a logarithmic scale begins above 0."),
        ("norm=pre,pre", "norm=pre,pre: give at least two different values, or a range such as 500..8000."),
        ("seed=1..9", "seed=1..9: seed is not searched: the finalists are trained with several seeds (--seeds)."),
        ("beam_size=1..8", "beam_size=1..8: beam_size is not searched: it is read after training"),
        ("dropout=0..0.4 dropout=0..0.3", "dropout=0..0.3: dropout has two ranges. Give one."),
    ],
)
def test_a_wrong_word_is_refused_in_one_line(words, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        space_of(words.split(), PARAMS, DVC)
    assert "\n" not in str(error.value)


@given(st.integers(1, 50), st.integers(1, 10_000))
def test_rungs_are_multiples_of_save_every_up_to_max_steps(save_every, validations):
    rungs = rungs_of(save_every * validations, save_every)
    assert rungs[-1] == save_every * validations
    assert len(rungs) <= 3
    assert all(rung % save_every == 0 < rung for rung in rungs)
    assert all(low < high for low, high in itertools.pairwise(rungs))


def test_a_first_rung_that_does_not_fit_is_refused():
    assert [rungs_of(600, 30, first) for first in (None, 90, 600)] == [RUNGS, [90, 270, 600], [600]]
    assert rungs_of(600, 30, 180) == [180, 600]  # 540 would be nearly the end
    for first in (50, 630):
        with pytest.raises(ValueError, match=f"{first} must be a multiple of save_every=30, at most max_steps=600"):
            rungs_of(600, 30, first)


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """A repository with a file of code, in the current folder."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("x = 1\n")
    commit_all(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_another_search_has_another_name():
    def name(space: Any = SPACE, commit: str = "HEAD", **options: Any) -> str:
        return name_of(commit, space, argparse.Namespace(**{"first_rung": None, "seed": 1, **options}))

    names = [name(), name(space_of(WORDS[:2], PARAMS, DVC)), name(first_rung=90), name(seed=2), name(commit="HEAD~1")]
    assert len(set(names)) == len(names)


def test_what_git_lacks_is_named_before_anything_runs(repository):
    check_committed()
    (repository / "dvc.lock").write_text("stages:\n")  # results may be new
    check_committed()
    for file in ("code/train.py", "own.de"):
        (repository / file).write_text("x = 2\n")
        with pytest.raises(ValueError, match=f"git does not have {file} as it is now, .* Commit it"):
            check_committed()
        commit_all(repository)


@pytest.fixture
def trainings(tmp_path, monkeypatch) -> Trainings:
    """The trainings of a search whose clones are empty folders."""
    monkeypatch.setattr(trainings_module, "clone", lambda folder, commit: folder)
    (tmp_path / "search-abc").mkdir()
    return Trainings(tmp_path / "search-abc", PARAMS, "HEAD")


def test_knobs_that_exclude_each_other_are_not_trained(trainings, monkeypatch, capsys):
    monkeypatch.setattr(trainings_module, "run_in", lambda *_, **__: pytest.fail("it was trained"))
    with pytest.raises(Untrainable):
        list(trainings.scores({"heads": 3, "dropout": 0.1}, RUNGS))
    shown = r"search-abc-\w{6}  heads=3 dropout=0.1  was not trained: .*d_model=128 does not divide into heads=3\n"
    assert re.fullmatch(shown, capsys.readouterr().out)


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        ({"reason": "Update 7: not finite.", "untrainable": True}, Untrainable, r"failed: Update 7: not finite\.$"),
        ({"reason": "The disk is full.", "untrainable": False}, Mistake, r"status 255: The disk is full\. The search"),
        (None, Mistake, "status 255: the last line The search stopped .* then the same command goes on"),
    ],
)
def test_knobs_alone_end_a_trial_all_else_ends_the_search(trainings, monkeypatch, end, kind, message):
    def fail(folder: Path, words: object, output: Any, **variables: str) -> int:
        output.write(b"the first line\nthe last line\n\n")
        if end:
            Path(variables[END]).write_text(json.dumps(end))
        return 255  # what DVC makes of each

    monkeypatch.setattr(trainings_module, "run_in", fail)
    with pytest.raises(kind, match=message) as error:
        list(trainings.scores({"dropout": 0.1}, RUNGS))
    assert isinstance(error.value, Untrainable) == (kind is Untrainable)


def experiment(seed: int, score: int, dropout: float) -> Any:
    """The part of an experiment that the finals read; on test nothing differs."""
    params, scores = {"seed": seed, "dropout": dropout}, {"valid_bleu": float(score), "bleu": 50.0 - seed}
    return SimpleNamespace(system=lambda **_: System("", params, scores))


def rows(**means: int) -> list[dict]:
    """The rows of finals. means: name with _ for - -> BLEU of seed 0."""
    groups = {
        name.replace("_", "-"): [experiment(seed, mean + seed, mean / 100) for seed in (1, 2, 3)]
        for name, mean in means.items()
    }
    return table(groups, ["dropout"])


def test_finals_compare_means_on_valid_and_test_the_winner_alone():
    start, first, second = rows(search_start=10, search_a=25, search_b=11)
    assert [row["valid_bleu_mean"] for row in (start, first, second)] == [12, 27, 13]
    assert (first["delta"], first["valid_bleu_deviation"], first["dropout"]) == (15, 1, 0.25)
    assert first["p_seeds_holm"] < 0.001 < 0.1 < second["p_seeds_holm"]
    assert [row["test_bleu_mean"] for row in (start, first, second)] == [None, 48, None]


@pytest.mark.parametrize(
    ("means", "said"),
    [
        ({"search_start": 10, "search_a": 25}, "The seeds show that it is better than params.yaml (p = 0.0001)."),
        ({"search_start": 10, "search_a": 11}, "The seeds do not show that it is better than params.yaml (p = 0.2879)"),
        ({"search_start": 20, "search_a": 11}, "No trial is better than params.yaml."),
        ({"search_a": 11, "search_b": 25}, DIVERGED),
    ],
)
def test_the_last_lines_say_what_the_seeds_show(means, said):
    lines = conclusion(rows(**means))
    assert any(line.startswith(said) for line in lines)
    winner = max(means, key=lambda name: means[name]).replace("_", "-")
    assert (lines[-1] == f"Take it over:  dvc exp apply {winner}") == (winner != "search-start")
    if said == DIVERGED:
        assert not [value for row in rows(**means) for name, value in row.items() if name[:2] in ("de", "p_") and value]


def test_finals_use_other_seeds_than_the_trials():
    seeds = []

    def run(name: str, values: dict) -> Any:
        seeds.append(values["seed"])
        raise Untrainable("it diverged")

    folder = Path("search-abc")
    trainings: Any = SimpleNamespace(
        folder=folder, params=SimpleNamespace(seed=1), experiment=lambda knobs: "search-abc-1", experiment_with=run
    )
    assert finals(trainings, [{"dropout": 0.1}], 3, 1) == []
    assert seeds == [2, 3, 4] * 2
