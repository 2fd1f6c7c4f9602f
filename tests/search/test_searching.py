"""The search for good knobs: what it proposes, prunes and refuses, and what its finals compare."""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
from math import log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.projects import command, commit_all
from support.tiny import ROOT

from pipeline.search import trainings as trainings_module
from pipeline.search.clones import check_clones_have
from pipeline.search.command import name_of
from pipeline.search.finals import DIVERGED, conclusion, table
from pipeline.search.space import describe, space_of
from pipeline.search.study import SeededSampler, best, open_study, rungs_of, search
from pipeline.search.trainings import Trainings
from pipeline.workflow.params import Params
from transformer.evaluation.comparison import System

DVC = ROOT / "dvc.yaml"
PARAMS = Params.load(ROOT / "params.yaml")
RUNGS = [60, 180, 600]
WORDS = ["warmup=50..8000", "dropout=0.0..0.5", "norm=pre,post"]
SPACE = space_of(WORDS, PARAMS, DVC)


def bleu(knobs: Any, updates: int) -> float:
    """The BLEU of an invented training: 40 at the end for warmup 400, dropout 0.1 and norm pre, else lower."""
    distance = abs(log(knobs["warmup"] / 400)) + 8 * abs(knobs["dropout"] - 0.1)
    return 40 / (1 + distance + (knobs["norm"] == "post")) * (updates / RUNGS[-1]) ** 0.5


def measured(calls: list, killed_at: int = 0):
    """Invented trainings that note each call; killed_at: the call in which the search is killed."""

    def measure(knobs, rungs):
        for updates in rungs:
            calls.append((tuple(knobs.items()), updates))
            if len(calls) == killed_at:
                raise KeyboardInterrupt
            yield bleu(knobs, updates)

    return measure


def searched(
    study: optuna.Study, count: int, measure: Any, sampler: str = "tpe", seed: int = 1, space=SPACE, jobs: int = 1
) -> None:
    search(study, space, RUNGS, measure, count, SeededSampler(sampler, seed), jobs)


def in_memory() -> optuna.Study:
    """A study that is not on the disk."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(direction="maximize")


def outcome(study: optuna.Study) -> list[tuple]:
    """What a search has done: of each trial its knobs, scores and end."""
    return [
        (trial.number, trial.params, trial.intermediate_values, trial.state.name, trial.values)
        for trial in study.get_trials()
    ]


def test_the_search_comes_nearer_to_an_optimum_than_chance():
    scores = dict.fromkeys(("tpe", "random"), 0.0)
    for sampler, seed in itertools.product(scores, (1, 2, 3)):
        study = in_memory()
        searched(study, 25, measured([]), sampler, seed)
        scores[sampler] += bleu(best(study, 1)[0], 600)
    assert scores["tpe"] > scores["random"] + 5


def test_most_trials_are_stopped_early_and_nothing_is_trained_twice():
    calls, study = [], in_memory()
    searched(study, 30, measured(calls))
    trained = [sum(updates == rung for _, updates in calls) for rung in RUNGS]
    assert trained[0] == 30 > 20 > trained[1] > trained[2]
    assert len(set(calls)) == len(calls)
    assert [trial.state.name for trial in study.get_trials()].count("COMPLETE") == trained[2]
    searched(study, 30, measured(calls))
    assert len(calls) == sum(trained)


@pytest.mark.parametrize("killed_at", [4, 18])
def test_a_killed_search_ends_as_one_that_was_not(tmp_path, killed_at):
    """Also one that is then given more trials."""
    calls, unkilled = [], in_memory()
    searched(unkilled, 14, measured(calls))
    (tmp_path / "search").mkdir()
    with pytest.raises(KeyboardInterrupt):
        searched(open_study(tmp_path / "search"), 12, measured([], killed_at))
    searched(open_study(tmp_path / "search"), 12, measured([]))
    searched(open_study(tmp_path / "search"), 14, measured([]))
    assert outcome(open_study(tmp_path / "search")) == outcome(unkilled)


def test_several_jobs_run_all_trials_and_end_at_an_error():
    study = in_memory()
    searched(study, 20, measured([]), jobs=4)
    assert len(study.get_trials()) == 20
    with pytest.raises(KeyboardInterrupt):
        searched(study, 99, measured([], killed_at=3), jobs=4)
    assert len(study.get_trials()) < 30
    assert {trial.state.name for trial in study.get_trials()} == {"COMPLETE", "PRUNED"}


def test_equal_knobs_are_trained_once_and_finalists_differ():
    calls, study = [], in_memory()
    space = space_of(["norm=pre,post", "heads=2,4"], PARAMS, DVC)

    def measure(knobs, rungs):
        for updates in rungs:
            calls.append((*knobs.values(), updates))
            yield knobs["heads"] * updates / 100.0

    searched(study, 15, measure, space=space)
    assert len(study.get_trials()) == 15
    assert len(set(calls)) == len(calls)
    finalists = [str(knobs) for knobs in best(study, 3)]
    assert len(set(finalists)) == len(finalists)
    assert "'heads': 4" in finalists[0]


def test_a_failed_training_is_pruned_with_the_lowest_score():
    study = in_memory()
    searched(study, 3, lambda knobs, rungs: (0.0 for _ in rungs[:1]))
    assert [(trial.state.name, trial.intermediate_values) for trial in study.get_trials()] == [("PRUNED", {60: 0})] * 3
    assert not best(study, 2)


def test_proposed_numbers_have_four_digits_within_their_range():
    study, low, high = in_memory(), 0.123456, 0.123999
    space = space_of(["warmup=50..8000", f"lr_factor={low}..{high}"], PARAMS, DVC)
    searched(study, 15, lambda knobs, rungs: (knobs["lr_factor"] for _ in rungs), space=space)  # learns from the 10th
    for trial in study.get_trials():
        assert isinstance(trial.params["warmup"], int)
        assert trial.params["lr_factor"] in {low, *(round(0.1235 + step / 1e4, 4) for step in range(5)), high}


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("warmup=500..8000", "warmup: 500 to 8000, log scale"),
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
        ("warm_up=1..2", "warm_up=1..2: unknown knob 'warm_up'. docs/params.md lists the knobs."),
        ("warmup=8000..500", "warmup=8000..500: a range is two numbers, the smaller first, as in 500..8000."),
        ("warmup=0..8000", "warmup=0..8000: warmup cannot be 0 (docs/params.md). Give a range such as 500..8000"),
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
    for first in (50, 630):
        with pytest.raises(ValueError, match=f"{first} must be a multiple of save_every=30, at most max_steps=600"):
            rungs_of(600, 30, first)


def test_another_search_has_another_name(tmp_path, monkeypatch):
    for path in ("versions.yaml", "pipeline/workflow/git.py", "pipeline/tracking/store.py", "transformer/cores.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path)

    def name(changes: Any = (), space: Any = SPACE, **options: Any) -> str:
        values = {"first_rung": None, "sampler": "tpe", "seed": 1, **options}
        return name_of(PARAMS.changed(**dict(changes)), space, argparse.Namespace(**values))

    names = [name(), name(space=space_of(WORDS[:2], PARAMS, DVC)), name(first_rung=90), name(sampler="random")]
    names += [name(seed=2), name({"dropout": 0.2}.items())]
    own = {"corpus": "files", "corpus_path": "own"}.items()
    for text in ("a\n", "b\n"):
        Path("own/train.de").write_text(text)
        names.append(name(own))
    Path("pipeline/tracking/store.py").write_text("x = 1\n")  # changes no training
    Path("transformer/cores.py").write_text(f"{(ROOT / 'transformer/cores.py').read_text()}\n# a comment\n")
    assert name() == names[0]
    Path("transformer/cores.py").write_text("x = 1\n")
    names.append(name())
    Path("versions.yaml").write_text("torch: 9\n")
    names.append(name())
    assert len(set(names)) == len(names)


@pytest.fixture
def trainings(tmp_path, monkeypatch) -> Trainings:
    """The trainings of a search whose clones are empty folders."""
    monkeypatch.setattr(trainings_module, "clone", lambda folder, commit, edits: None)
    return Trainings(tmp_path / "search-abc", PARAMS, "HEAD", b"")


def test_knobs_that_exclude_each_other_are_not_trained(trainings, monkeypatch, capsys):
    monkeypatch.setattr(trainings_module, "run_in", lambda *_, **__: pytest.fail("it was trained"))
    assert list(trainings.scores({"heads": 3, "dropout": 0.1}, RUNGS)) == [0]
    shown = r"search-abc-\w{6}  heads=3 dropout=0.1  was not trained: .*d_model=128 does not divide into heads=3\n"
    assert re.fullmatch(shown, capsys.readouterr().out)


@pytest.mark.parametrize(("status", "free", "goes_on"), [(1, 1e9, True), (1, 1e3, False), (-9, 1e9, False)])
def test_a_failed_stage_scores_0_a_full_disk_and_signals_stop(trainings, monkeypatch, status, free, goes_on):
    trainings.folder.mkdir()
    monkeypatch.setattr(trainings_module, "run_in", lambda *_, **__: status)
    monkeypatch.setattr(trainings_module.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    if goes_on:
        assert list(trainings.scores({"dropout": 0.1}, RUNGS)) == [0]
    else:
        with pytest.raises(ValueError, match=f"ended with status {status} .* The search stopped"):
            list(trainings.scores({"dropout": 0.1}, RUNGS))


REFERENCES = [f"the {word} dog sees a cat in the garden" for word in ("old", "new", "red", "big")] * 10


def experiment(seed: int, right: int, dropout: float) -> Any:
    """The parts of an experiment that the finals read: the first `right` translations of valid are exact."""
    lines = [*REFERENCES[:right], *["a dog"] * (len(REFERENCES) - right)]
    params = {"seed": seed, "dropout": dropout, "target": "en"}
    scores = {"valid_bleu": float(right), "bleu": 50.0 - seed}  # on test nothing differs
    return SimpleNamespace(
        system=lambda **_: System("", params, scores),
        scores=lambda: scores,
        hypotheses=lambda split: f"{split}.hyp",
        raw=lambda side, split: f"{split}.{side}",
        lines={"valid.hyp": lines, "valid.tgt": REFERENCES}.__getitem__,
    )


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
    assert first["p_randomisation_holm"] < 0.01
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


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """A folder with git and DVC and a corpus that neither has, in the current folder."""
    monkeypatch.chdir(tmp_path)
    command(tmp_path, "git", "init", "-q")
    command(tmp_path, "dvc", "init", "-q")
    commit_all(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own/train.de").write_text("eins\n")
    return tmp_path


def test_a_corpus_that_git_lacks_is_refused_before_anything_runs(repository):
    command(repository, "git", "config", "status.showUntrackedFiles", "no")
    with pytest.raises(ValueError, match=r"git does not have all of own, .* git add own; or to DVC: dvc add own"):
        check_clones_have(Path("own"))
    command(repository, "git", "add", "own")
    (repository / "own/train.de").write_text("zwei\n")  # an edit of a file that git has is taken along
    check_clones_have(Path("own"))
    check_clones_have(repository.parent)  # outside the repository
    (repository / "own/train.en").write_text("one\n")
    with pytest.raises(ValueError, match="git does not have all of own"):
        check_clones_have(Path("own"))
    command(repository, "git", "rm", "-rqf", "--cached", "own")
    (repository / ".git/info/exclude").write_text("own\n")
    with pytest.raises(ValueError, match="git does not have all of own"):
        check_clones_have(Path("own"))


@pytest.mark.full
@pytest.mark.parametrize("added", ["parent", "parent/own/train.de"])
def test_a_corpus_in_dvc_is_refused_after_an_edit(repository, added):
    (repository / "parent").mkdir()
    folder = Path("own").rename("parent/own")
    command(repository, "dvc", "add", added)
    if added == "parent":
        with pytest.raises(ValueError, match=f"git does not have {added}.dvc, .* git add {added}.dvc"):
            check_clones_have(folder)
    command(repository, "git", "add", ".")
    check_clones_have(folder)
    (folder / "train.de").write_text("edited\n")
    with pytest.raises(ValueError, match=f"has edits that {added}.dvc does not have, .* dvc commit {added}.dvc"):
        check_clones_have(folder)
