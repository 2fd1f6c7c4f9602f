"""The search for good knobs: it finds a planted optimum, trains nothing twice, and a killed one ends the same."""

from __future__ import annotations

import itertools
import json
import random
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.projects import command, commit_all
from support.runs import start
from support.tiny import ROOT

from pipeline.experiments.clones import check_clones_have
from pipeline.experiments.search import plan as plan_module
from pipeline.experiments.search.command import DIVERGED, certainty, show
from pipeline.experiments.search.finals import Entrant, table
from pipeline.experiments.search.halving import best, search
from pipeline.experiments.search.plan import FACTOR, Plan, default_rungs, given_rungs
from pipeline.experiments.search.rung import TrialRun, environment, run_type
from pipeline.experiments.search.space import FIXED, space
from pipeline.experiments.search.study import Trials, open_database
from pipeline.experiments.search.trainings import Trainings, Untrainable, failure, score_of
from pipeline.params import Params
from transformer.evaluation.comparison import System
from transformer.training.config import SOME_BLEU
from transformer.training.loop import Diverged

DVC = ROOT / "dvc.yaml"
PARAMS = Params.load(ROOT / "params.yaml")
RUNGS = [60, 210, 600]
WORDS = ["warmup=50..8000", "dropout=0.0..0.5", "norm=pre,post"]
OPTIMUM = {"warmup": 400, "dropout": 0.1, "norm": "pre"}


def bleu(knobs: dict, updates: int) -> float:
    """A stub of a training: its BLEU is 40 at OPTIMUM and the end, and falls with the distance and before the end."""
    distance = abs(log(knobs["warmup"] / OPTIMUM["warmup"])) + 8 * abs(knobs["dropout"] - OPTIMUM["dropout"])
    return 40 / (1 + distance + (knobs["norm"] == "post")) * (updates / RUNGS[-1]) ** 0.5


class Trained:
    """A stub of the trainings: how far each trial was trained, and in which order."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def score(self, number: int, knobs: dict, updates: int) -> float:
        self.calls.append((number, updates))
        return bleu(knobs, updates)


def trials_in(folder: Path | None = None, seed: int = 1, name: str = "tpe") -> Trials:
    """The trials of a search in an SQLite database in a folder; in memory without one."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = open_database(f"sqlite:///{folder / 'trials.db'}", "search") if folder else None
    return Trials(study or optuna.create_study(direction="maximize"), space(WORDS, DVC), seed, name, 9)


def ended(trials: Trials) -> list[tuple]:
    """What a search has done: of each trial its knobs, scores and end."""
    return [
        (trial.number, trial.params, trial.intermediate_values, trial.state.name, trial.value) for trial in trials.all()
    ]


def test_the_search_finds_a_planted_optimum_better_than_random_proposals_do():
    found = {}
    for name in ("tpe", "random"):
        trials = trials_in(name=name)
        search(trials, 54, RUNGS, Trained().score)
        found[name] = best(trials, 1)[0]
    params = found["tpe"].params
    assert params["norm"] == "pre"
    assert 250 < params["warmup"] < 640
    assert abs(params["dropout"] - OPTIMUM["dropout"]) < 0.05
    assert found["tpe"].value > found["random"].value


def test_a_third_of_a_generation_goes_on_at_each_rung_and_nothing_is_trained_twice():
    trained, trials = Trained(), trials_in()
    search(trials, 21, RUNGS, trained.score)  # generations of 9, 9 and 3 trials
    assert len(trained.calls) == len(set(trained.calls))
    assert [sum(updates == rung for _, updates in trained.calls) for rung in RUNGS] == [21, 3 + 3 + 1, 3]
    for numbers in (range(9), range(9, 18), range(18, 21)):
        scores = {number: bleu(trials.all()[number].params, 600) for number in numbers}
        states = [trials.all()[number].state.name for number in numbers]
        assert states.count("COMPLETE") == 1
        assert trials.all()[max(scores, key=scores.__getitem__)].state.name == "COMPLETE"
    search(trials, 21, RUNGS, trained.score)
    assert len(trained.calls) == 31


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 30), st.integers(1, 4), st.sampled_from(["tpe", "random"]), st.integers(1, 10**6))
def test_how_many_train_at_once_changes_nothing(count, jobs, name, seed):
    outcomes = []
    for at_once in (1, jobs):
        trials = trials_in(name=name, seed=seed)
        search(trials, count, RUNGS, Trained().score, at_once)
        outcomes.append(ended(trials))
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0]) == count


def test_knobs_are_tried_once_while_there_are_others_and_the_best_trials_differ():
    trained, study = Trained(), optuna.create_study(direction="maximize")
    trials = Trials(study, space(["norm=pre,post", "heads=2,4,8"], DVC), 1, "tpe", 9)
    quality = {("pre", 8): 30.0, ("pre", 4): 20.0}
    search(
        trials,
        12,
        RUNGS,
        lambda number, knobs, updates: (
            trained.calls.append((number, updates)) or quality.get((knobs["norm"], knobs["heads"]), 1.0)
        ),
    )
    tried = [tuple(trial.params.items()) for trial in trials.all()]
    assert len(tried) == 12
    assert len(set(tried[:6])) == 6
    assert len(trained.calls) == len({(tried[number], updates) for number, updates in trained.calls})
    (first, *others) = [trial.params for trial in best(trials, 3)]
    assert first == {"norm": "pre", "heads": 8}
    assert first not in others


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_trial_begins_after_one_has_failed(jobs):
    begun = []

    def score(number: int, knobs: dict, updates: int) -> float:
        begun.append(number)
        if number == 2:
            raise ValueError("the disk is full")
        return 1.0

    with pytest.raises(ValueError, match="the disk is full"):
        search(trials_in(), 9, RUNGS, score, jobs)
    assert jobs == 2 or begun == [0, 1, 2]


@pytest.mark.parametrize("name", ["tpe", "gp"])
def test_a_search_may_go_on_with_more_trials_and_learns_from_those_before(name):
    trials = trials_in(name=name)
    search(trials, 12, RUNGS, Trained().score)
    before = ended(trials)
    search(trials, 24, RUNGS, Trained().score)
    assert ended(trials)[:12] == before
    assert len(ended(trials)) == 24


KILLED = """
import os, signal, sys
from pathlib import Path
from test_searching import RUNGS, Trained, search, trials_in

class Killed(Trained):
    def score(self, number, knobs, updates):
        found = super().score(number, knobs, updates)
        if len(self.calls) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return found

trained = Killed()
trials = trials_in(Path(sys.argv[1]))
if sys.argv[3]:
    method = getattr(trials, sys.argv[3])
    calls = []
    def killed(*given):
        calls.append(given)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*given)
    setattr(trials, sys.argv[3], killed)
search(trials, 18, RUNGS, trained.score)
"""


@pytest.mark.parametrize(
    ("calls", "method"),
    [
        (11, ""),
        *(pytest.param(*given, marks=pytest.mark.full) for given in ((1, ""), (16, ""), (0, "propose"), (0, "end"))),
    ],
)
def test_a_killed_search_that_is_started_again_ends_as_one_that_was_not_killed(tmp_path, calls, method):
    """It is killed in a training, among the proposals of a generation, or while the ends of trials are written."""
    (tmp_path / "whole").mkdir()
    whole, unkilled = trials_in(tmp_path / "whole"), Trained()
    search(whole, 18, RUNGS, unkilled.score)
    process = start(KILLED, str(tmp_path), str(calls), method, cwd=ROOT / "tests/pipeline")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    again, trained = trials_in(tmp_path), Trained()
    search(again, 18, RUNGS, trained.score)
    assert ended(again) == ended(whole)
    done = calls - 1 if calls else 0 if method == "propose" else 13
    assert trained.calls == unkilled.calls[done:]  # what was done is not done again


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("warmup=500..8000", "warmup: 500 to 8000, log scale"),
        ("warmup=500..800", "warmup: 500 to 800, linear scale"),
        ("warmup=500..800:log", "warmup: 500 to 800, log scale"),
        ("dropout=0..0.4", "dropout: 0 to 0.4, linear scale"),
        ("lr_factor=1e-2..10:linear", "lr_factor: 0.01 to 10, linear scale"),
        ("norm=pre,post", "norm: pre, post"),
        ("tie_embeddings=true,false", "tie_embeddings: true, false"),
        ("heads=2,4,8", "heads: 2, 4, 8"),
        ("bpe_merges=500..4000", "bpe_merges: 500 to 4000, linear scale"),
    ],
)
def test_a_word_is_a_range_or_choices(word, shown):
    (found,) = space([word], DVC)
    assert str(found) == shown.replace(" 0 ", " 0.0 ").replace("10,", "10.0,")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("warmup", "'warmup' must be a knob and its values, as warmup=500..8000 or norm=pre,post."),
        ("warm_up=1..2", "warm_up=1..2: unknown knob 'warm_up'. docs/params.md lists the knobs."),
        ("warmup=8000..500", "warmup=8000..500: a range is two numbers, the smaller first, as in 500..8000."),
        ("warmup=1..2..3", "warmup=1..2..3: a range is two numbers, the smaller first, as in 500..8000."),
        ("warmup=0..8000", "warmup=0..8000: '0' must be a whole number >= 1, in a range such as 500..8000"),
        ("warmup=0.5..8000", "warmup=0.5..8000: '0.5' must be a whole number >= 1, in a range"),
        ("warmup=20-80", "warmup=20-80: '20-80' must be a whole number >= 1, in a range such as 500..8000 or a list"),
        ("dropout=0.1..1", "dropout=0.1..1: '1' must be a number >= 0 and < 1, in a range"),
        ("dropout=0..0.4:log", "dropout=0..0.4:log: a logarithmic scale begins above 0."),
        ("dropout=0..0.4:ln", "dropout=0..0.4:ln: the scale 'ln' must be one of log, linear, as in 500..8000:log."),
        ("dropout=0.1", "dropout=0.1: give at least two different values, or a range such as 500..8000."),
        ("norm=pre,pre", "norm=pre,pre: give at least two different values, or a range such as 500..8000."),
        ("norm=pre,past", "norm=pre,past: 'past' must be one of pre, post, in"),
        ("norm=pre..post", "norm=pre..post: a range is two numbers, the smaller first, as in 500..8000."),
        ("seed=1..9", "seed=1..9: seed is not searched: the finalists are trained with several seeds (--seeds)."),
        (
            "beam_size=1..8",
            "beam_size=1..8: beam_size is not searched: it is read after training, and a search stops most",
        ),
        ("dropout=0..0.4 dropout=0..0.3", "dropout=0..0.3: dropout has two ranges. Give one."),
    ],
)
def test_a_wrong_word_is_refused_in_one_line(words, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        space(words.split(), DVC)
    assert "\n" not in str(error.value)


@given(st.floats(1e-6, 1e6), st.floats(1.0001, 1e6), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_a_proposed_number_has_four_digits_and_is_within_its_range(low, ratio, seed):
    (found,) = space([f"lr_factor={low!r}..{low * ratio!r}"], DVC)
    value = found.rounded(random.Random(seed).uniform(low, low * ratio))
    assert low <= value <= low * ratio
    assert value in (float(f"{value:.4g}"), low, low * ratio)


@given(st.integers(1, 50), st.integers(1, 10_000))
def test_rungs_are_multiples_of_save_every_that_end_with_max_steps(save_every, validations):
    found = default_rungs(save_every * validations, save_every)
    assert found[-1] == save_every * validations
    assert all(rung % save_every == 0 < rung for rung in found)
    assert all(low < high for low, high in itertools.pairwise(found))


def test_rungs_that_do_not_fit_are_refused():
    assert given_rungs("60,600", PARAMS) == [60, 600]
    assert given_rungs(None, PARAMS) == [60, 210, 600]
    for text in ("50,600", "600,60", "60,60,600", "sixty,600", "0,600"):
        with pytest.raises(ValueError, match="must be rising multiples of save_every=30, separated by commas"):
            given_rungs(text, PARAMS)
    with pytest.raises(ValueError, match="must end with max_steps=600"):
        given_rungs("60,300", PARAMS)


def named(params: Params = PARAMS, words: Sequence[str] = WORDS, rungs: Sequence[int] = RUNGS, **given: Any) -> str:
    """The name of a search."""
    return Plan(params, space(words, DVC), rungs, given.get("sampler", "tpe"), given.get("seed", 1)).name


def test_the_same_search_has_the_same_name_and_another_one_another(tmp_path, monkeypatch):
    shutil.copy(ROOT / "versions.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    code = {"transformer/model/attention.py": "1", "pipeline/params.py": "2"}
    monkeypatch.setattr(plan_module, "WorkTree", lambda: SimpleNamespace(code=lambda folder: code))
    name = named()
    assert name == named()
    names = [
        named(words=WORDS[:2]),
        named(rungs=RUNGS[1:]),
        named(sampler="gp"),
        named(seed=2),
        named(replace(PARAMS, dropout=0.2)),
    ]
    own = replace(PARAMS, corpus="files", corpus_path="own")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/train.de").write_text("a\n")
    names.append(named(own))
    (tmp_path / "own/train.de").write_text("b\n")
    names.append(named(own))
    code["pipeline/params.py"] = "3"  # changes no result
    assert named() == name
    code["transformer/model/attention.py"] = "4"
    names.append(named())
    (tmp_path / "versions.yaml").write_text("torch: 9\n")
    names.append(named())
    assert len({name, *names}) == 1 + len(names)


def test_a_search_runs_in_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_module, "project_root", lambda: tmp_path)
    plan = Plan(PARAMS, space(WORDS, DVC), RUNGS, "tpe", 1)
    with plan.alone(), pytest.raises(ValueError, match="Another process runs this search"), plan.alone():
        pass
    assert plan.generation_size == FACTOR**2


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
    (repository / ".git/info/exclude").write_text("*.stray\n")
    (repository / "own/notes.stray").write_text("ignored\n")
    check_clones_have(Path("own"))
    check_clones_have(repository.parent)  # outside the repository
    (repository / "own/train.en").write_text("one\n")
    with pytest.raises(ValueError, match="git does not have all of own"):
        check_clones_have(Path("own"))


def test_a_corpus_that_git_ignores_and_dvc_lacks_is_refused(repository):
    (repository / ".git/info/exclude").write_text("own\n")
    with pytest.raises(ValueError, match="git does not have all of own"):
        check_clones_have(Path("own"))


@pytest.mark.parametrize("added", ["own", "parent", "parent/own/train.de"])
def test_a_corpus_in_dvc_is_taken_as_it_is_and_refused_after_an_edit(repository, added):
    folder = Path("own")
    if added != "own":
        Path("parent").mkdir()
        folder = folder.rename("parent/own")
    command(repository, "dvc", "add", added)
    if added != "parent/own/train.de":
        with pytest.raises(ValueError, match=f"git does not have {added}.dvc, .* git add {added}.dvc"):
            check_clones_have(folder)
    command(repository, "git", "add", ".")
    check_clones_have(folder)
    (folder / "train.de").write_text("edited\n")
    with pytest.raises(ValueError, match=f"has edits that {added}.dvc does not have, .* dvc commit {added}.dvc"):
        check_clones_have(folder)


def test_a_database_of_mlflow_is_refused(tmp_path):
    from mlflow import MlflowClient

    url = f"sqlite:///{tmp_path / 'mlflow.db'}"
    MlflowClient(url).search_experiments()
    with pytest.raises(ValueError, match="is a database of MLflow"):
        open_database(url, "search")


def test_a_database_that_is_not_there_is_named_without_its_password(tmp_path):
    with pytest.raises(ValueError, match="--storage ") as error:
        open_database("postgresql://anna:secret@127.0.0.1:1/none", "search")
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


@given(st.floats(0.0, 100.0), st.floats(0.0, 20.0), st.floats(0.0, 100.0), st.floats(0.0, 20.0))
def test_a_higher_bleu_scores_higher_and_without_one_a_lower_loss_does(bleu, loss, other_bleu, other_loss):
    one, other = (
        score_of([{"valid_bleu": None, "valid_loss": None}, {"valid_bleu": given, "valid_loss": cost}])
        for given, cost in ((bleu, loss), (other_bleu, other_loss))
    )
    if max(bleu, other_bleu) >= SOME_BLEU:
        assert (one > other) == (bleu > other_bleu) or min(bleu, other_bleu) < SOME_BLEU
    elif loss + 1e-9 < other_loss:
        assert one > other
    assert one > 0  # more than a training that diverged


def curve(last: int, every: int = 30) -> list[dict]:
    """The rows of a training that validates every 30 updates."""
    return [
        {"step": step, "train_loss": 5.0, "valid_loss": 4.0 if step % 30 == 0 else None, "valid_bleu": None}
        for step in range(every, last + 1, every)
    ]


@pytest.fixture
def stops(monkeypatch, tmp_path) -> list[int]:
    """The signals that this process gets. A search has started it, with the rung 60 and the file rung.json."""
    for name, value in environment(60, tmp_path / "rung.json").items():
        monkeypatch.setenv(name, value)
    seen: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", seen.append)
    return seen


def trial_run(tmp_path: Path, max_steps: int = 600) -> TrialRun:
    """The run of a training that a search has started; it is not entered, so that MLflow is not needed."""
    made = run_type()(tmp_path, {"max_steps": max_steps}, "key", {})
    assert isinstance(made, TrialRun)
    return made


def test_a_training_stops_at_its_rung_once_and_leaves_its_curve(tmp_path, stops):
    run = trial_run(tmp_path)
    run.log_curve([])  # a fresh training has no rows yet
    for row in curve(50, every=10):
        run.log_curve([row])
    assert stops == []
    for row in curve(70, every=10)[5:]:
        run.log_curve([row])
    assert stops == [signal.SIGTERM]
    assert json.loads((tmp_path / "rung.json").read_text()) == {"curve": curve(60, every=10)}


def test_a_training_that_has_gone_further_stops_at_once_and_leaves_the_curve_up_to_the_rung(tmp_path, stops):
    trial_run(tmp_path).log_curve(curve(120))
    assert stops == [signal.SIGTERM]
    assert json.loads((tmp_path / "rung.json").read_text()) == {"curve": curve(60)}


def test_the_last_rung_stops_no_training(tmp_path, stops):
    trial_run(tmp_path, max_steps=60).log_curve(curve(60))
    assert stops == []
    assert json.loads((tmp_path / "rung.json").read_text()) == {"curve": curve(60)}


def test_a_row_without_a_validation_is_no_rung(tmp_path, stops):
    """A training that is stopped in the validation of its rung has the cost of its last updates, and no score."""
    trial_run(tmp_path).log_curve([*curve(30), {"step": 60, "seconds": 3.0}])
    assert stops == []
    assert not (tmp_path / "rung.json").exists()


def test_a_training_that_diverges_says_so_and_one_that_ends_early_leaves_its_curve(tmp_path, stops):
    trial_run(tmp_path).__exit__(Diverged, Diverged("Update 7: the loss is not finite"), None)
    assert json.loads((tmp_path / "rung.json").read_text()) == {"diverged": "Update 7: the loss is not finite"}
    (tmp_path / "rung.json").unlink()
    early = trial_run(tmp_path)
    early.log_curve(curve(30))
    early.__exit__(None, None, None)
    assert json.loads((tmp_path / "rung.json").read_text()) == {"curve": curve(30)}


def test_knobs_that_exclude_each_other_are_not_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("pipeline.experiments.search.trainings.clone", lambda *given: pytest.fail("it was trained"))
    trainings = Trainings(tmp_path, "search-abc", PARAMS, "HEAD", b"")
    assert trainings.score(3, {"heads": 3, "dropout": 0.1}, 60) == 0
    printed = capsys.readouterr().out.split("\n")
    assert printed[0] == "search-abc-03: it was not trained (params.yaml: d_model=128 does not divide into heads=3.)"
    assert printed[1] == "search-abc-03  heads=3 dropout=0.1  score 0.00 after 60 updates"


REFERENCES = [f"the {word} dog sees a cat in the garden" for word in ("old", "new", "red", "big")] * 10


def experiment(seed: int, right: int, dropout: float) -> Any:
    """The parts of an experiment that the finals read: the first `right` translations of valid are exact."""
    lines = [*REFERENCES[:right], *["a dog"] * (len(REFERENCES) - right)]
    params = {"seed": seed, "dropout": dropout, "target": "en"}
    scores = {"valid_bleu": float(right), "bleu": 50.0 - seed}  # on test nothing differs
    files = {"valid.hyp": lines, "valid.tgt": REFERENCES, "test.hyp": REFERENCES, "test.tgt": REFERENCES}
    return SimpleNamespace(
        scored=lambda: System("", params, scores),
        scores=lambda: scores,
        hypotheses=lambda split: f"{split}.hyp",
        raw=lambda side, split: f"{split}.{side}",
        lines=files.__getitem__,
    )


def test_the_finals_compare_means_over_seeds_on_valid_and_show_test_for_the_winner_alone():
    everyone = [
        Entrant("start", {"dropout": 0.3}, {}, is_start=True),
        Entrant("one", {"dropout": 0.1}, {}),
        Entrant("other", {"dropout": 0.2}, {}),
    ]
    found = {
        entrant.name: [experiment(seed, mean + seed, entrant.knobs["dropout"]) for seed in (1, 2, 3)]
        for entrant, mean in zip(everyone, (10, 25, 11), strict=True)
    }
    start, one, other = table(everyone, found)
    assert [row["valid_bleu_mean"] for row in (start, one, other)] == [12, 27, 13]
    assert (one["delta"], one["valid_bleu_deviation"], one["dropout"]) == (15, 1, 0.1)
    assert one["p_seeds_holm"] < 0.001 < 0.1 < other["p_seeds_holm"]
    assert one["p_randomisation_holm"] < 0.01
    assert [row["test_bleu_mean"] for row in (start, one, other)] == [None, 48, None]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"p_seeds": 0.01}, "The seeds show that it is better than params.yaml (p = 0.01)."),
        (
            {"p_seeds": 0.04, "p_seeds_holm": 0.08},
            "do not show that it is better than params.yaml (p = 0.08): give more",
        ),
        ({"p_seeds": None}, "Nothing shows yet that it is better than params.yaml"),
    ],
)
def test_the_last_lines_say_what_the_seeds_show(row, said):
    assert said in certainty(row)


@pytest.mark.parametrize(
    ("printed", "kind"),
    [
        (
            b"error: No pair is left.\nERROR: failed to reproduce 'filter': failed to run: x, exited with 1\n",
            Untrainable,
        ),
        (b"error: The disk of work is full.\nERROR: failed to run: x, exited with 1\n", ValueError),
        (b"ERROR: failed to run: x, exited with -9\n", ValueError),
        (b"ERROR: Unable to acquire lock.\n", ValueError),
    ],
)
def test_a_stage_that_its_knobs_make_fail_has_no_score_and_other_failures_stop_the_search(tmp_path, printed, kind):
    error = failure("search-1-02", tmp_path / "log", printed)
    assert type(error) is kind
    assert kind is ValueError or str(error) == "it failed (error: No pair is left.)"


def test_nothing_is_compared_with_a_params_yaml_that_diverged(capsys):
    everyone = [Entrant("search-1-02", {"dropout": 0.1}, {}), Entrant("search-1-05", {"dropout": 0.2}, {})]
    found = {
        entrant.name: [experiment(seed, mean + seed, entrant.knobs["dropout"]) for seed in (1, 2, 3)]
        for entrant, mean in zip(everyone, (11, 25), strict=True)
    }
    rows = table(everyone, found)
    assert [row["valid_bleu_mean"] for row in rows] == [13, 27]
    assert all(value is None for row in rows for name, value in row.items() if name == "delta" or name.startswith("p_"))
    show(rows)
    printed = capsys.readouterr().out
    assert DIVERGED in printed
    assert "Take it over:  dvc exp apply search-1-05" in printed
    assert "p_seeds" not in printed


def test_knobs_that_are_not_searched_exist():
    assert FIXED.keys() <= vars(PARAMS).keys()
    assert json.dumps(FIXED)
