"""What MLflow's pages say of a configuration."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from types import SimpleNamespace

import pytest
from ruamel.yaml import YAML
from support.tiny import ROOT

from pipeline.tracking.labels import configuration, repetition
from pipeline.tracking.runs_table import show_differing_params
from pipeline.workflow.params import Params

TOY = Params.load(ROOT / "recipes/toy.yaml")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"seed": 3}, "toy"),
        ({"dropout": 0.2, "layers": 4}, "layers 4, dropout 0.2 (toy)"),
        ({"corpus": "texts/my own"}, "my own"),
    ],
)
def test_a_configuration_is_named_by_its_recipe_and_what_differs_whatever_its_seed(changes, name):
    assert configuration(vars(TOY.replace(**changes))) == name


@pytest.mark.parametrize("recipe", sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml")))
def test_the_line_that_repeats_a_run_gives_its_params(recipe):
    changes = {"seed": 7, "norm": "post", "lowercase": True, "adam_epsilon": 1e-8, "corpus": "texts/a b"}
    params = Params.load(ROOT / f"recipes/{recipe}.yaml").replace(**changes)
    words = shlex.split(repetition(vars(params), {"recorded_at": "abc"}).strip().split("\n")[-1])
    assert words[:4] == ["git", "checkout", "abc", "&&"]
    values = vars(Params.load(ROOT / words[5]))
    for knob, _, value in (word.partition("=") for before, word in pairwise(words) if before == "-S"):
        values[knob] = YAML(typ="safe").load(value)
    assert Params(**values) == params


@pytest.mark.parametrize(
    ("seeds", "statuses", "means"), [((1, 1), "FF", True), ((1, 2), "FF", False), ((1, 1), "FR", False)]
)
def test_the_table_has_means_if_a_configuration_has_several_finished_runs(seeds, statuses, means):
    runs = [
        SimpleNamespace(
            info=SimpleNamespace(status={"F": "FINISHED", "R": "RUNNING"}[status]),
            data=SimpleNamespace(params={"seed": str(number)}, tags={"configuration": f"toy {name}"}),
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
