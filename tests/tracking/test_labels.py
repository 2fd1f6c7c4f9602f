"""What MLflow's pages say of a configuration."""

from __future__ import annotations

import json
import shlex
import shutil
from itertools import pairwise
from types import SimpleNamespace

import pytest
from dvc.utils.hydra import apply_overrides
from support.tiny import ROOT

from pipeline.tracking import labels
from pipeline.tracking.runs_table import show_differing_params
from pipeline.workflow.params import Params

TOY = Params.load(ROOT / "recipes/toy.yaml")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"seed": 3}, "toy"),
        ({"dropout": 0.2, "layers": 4}, "layers 4, dropout 0.2 (toy)"),
        ({"corpus": "texts/my own"}, "texts/my own, toy"),
    ],
)
def test_a_configuration_is_named_by_its_recipe_and_what_differs_whatever_its_seed(changes, name):
    assert labels.labels(vars(TOY.replace(**changes)), {})[labels.SETTINGS] == name


@pytest.mark.parametrize("corpus", ["texts/my (v2)", "it's", "a=b", "2024", "a,b", 'a "b"', "true", "für"])
def test_the_line_that_repeats_a_run_gives_dvc_its_params(tmp_path, corpus):
    changes = {"seed": 7, "norm": "post", "lowercase": True, "adam_epsilon": 1e-8, "corpus": corpus}
    params = Params.load(ROOT / "recipes/copy.yaml").replace(**changes)
    words = shlex.split(labels.labels(vars(params), {"recorded_at": "abc"})[labels.NOTE].strip().split("\n")[-1])
    assert words[:4] == ["git", "checkout", "abc", "&&"]
    shutil.copy(ROOT / words[5], tmp_path / "params.yaml")
    apply_overrides(tmp_path / "params.yaml", [word for before, word in pairwise(words) if before == "-S"])
    assert Params.load(tmp_path / "params.yaml") == params


def test_a_file_among_the_recipes_that_is_none_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(labels, "RECIPES", tmp_path)
    own = {"corpus": "own", "layers": 2}
    assert labels.labels(own, {})[labels.SETTINGS] == "layers 2 (own, toy)"
    for name, text in {"empty": b"", "list": b"- 1", "odd": b"\xff", "mine": b"corpus: own\nlayers: 2\n"}.items():
        (tmp_path / f"{name}.yaml").write_bytes(text)
    assert labels.labels(own, {})[labels.SETTINGS] == "mine"


@pytest.mark.parametrize(
    ("seeds", "statuses", "means"), [((1, 1), "FF", True), ((1, 2), "FF", False), ((1, 1), "FR", False)]
)
def test_the_table_has_means_if_a_configuration_has_several_finished_runs(seeds, statuses, means):
    runs = [
        SimpleNamespace(
            info=SimpleNamespace(run_id=number, status={"F": "FINISHED", "R": "RUNNING"}[status]),
            data=SimpleNamespace(params={"seed": str(number)}, tags={"settings": f"toy {name}"}),
        )
        for number, (name, status) in enumerate(zip(seeds, statuses, strict=True))
    ]
    tags = {}
    client = SimpleNamespace(
        search_runs=lambda *words, **named: runs, set_experiment_tag=lambda _, name, value: tags.update({name: value})
    )
    show_differing_params(client, "1")
    (view,) = map(json.loads, tags.values())
    assert ("groupBy" in view, "params.`seed`" in view["selectedColumns"]) == (means, not means)
    assert ("metrics.`p_randomisation`" in view["selectedColumns"]) == (not means)
