"""The house stands as it is described: who imports whom, and dvc.yaml says what the code really reads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from transformer.params import Params

ROOT = Path(__file__).parent.parent
PACKAGE, STAGES = ROOT / "transformer", ROOT / "pipeline"
HARMLESS = {"pipeline/experiments.py", "pipeline/rows.py", "pipeline/stage.py", "transformer/machine.py",
            "transformer/outbox.py",
            "transformer/params.py", "transformer/recording.py", "transformer/registry.py",
            "transformer/tracking.py", "transformer/view.py"}  # they cannot change a result  # fmt: skip
DVC = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
MODULES = sorted(PACKAGE.glob("*.py")) + sorted(STAGES.glob("*.py"))


def imports(path: Path) -> set[str]:
    """Dotted names of the modules that a file imports, at the top or inside a function."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def ours(path: Path) -> set[Path]:
    """Files of this project that a file imports."""
    candidates = {ROOT / (name.replace(".", "/") + ".py") for name in imports(path)}
    return {candidate for candidate in candidates if candidate.is_file()}


def reached(path: Path) -> set[Path]:
    """A file and all that it imports, directly or not; what cannot change a result is not followed."""
    found, waiting = set(), [path]
    while waiting:
        file = waiting.pop()
        if file not in found and file.relative_to(ROOT).as_posix() not in HARMLESS:
            found.add(file)
            waiting += ours(file)
    return found


def knobs_read(path: Path) -> set[str]:
    """Knobs that a stage reads, itself or in pipeline/: params.name, and the names in params.only(...)."""
    known, read = {knob.name for knob in fields(Params)}, set()
    files = {file for file in reached(path) if file.parent == STAGES}
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("params", "self.params"):
            read |= {node.attr} & known
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "only":
            read |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return read


def reads_all(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return "asdict(params)" in text or "pipeline.rows" in text  # what makes the MLflow row reads every one


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_the_package_never_imports_the_pipeline(path):
    assert not [name for name in imports(path) if name.split(".")[0] == "pipeline"]


def test_mlflow_is_imported_where_its_store_registry_and_server_are_met_and_dvc_by_nobody():
    for path in MODULES:
        roots = {name.split(".")[0] for name in imports(path)}
        assert "dvc" not in roots, path
        assert "mlflow" not in roots or path.name in ("tracking.py", "registry.py", "serving.py"), path


def test_below_the_pipeline_nobody_sees_params():
    for path in PACKAGE.glob("*.py"):
        assert path.name == "params.py" or "transformer.params" not in imports(path), path


def test_the_model_stands_on_torch_and_numpy_alone():
    for name in ("model", "attention", "dropout", "linear"):
        others = {name.split(".")[0] for name in imports(PACKAGE / f"{name}.py")}
        assert others <= {"__future__", "collections", "math", "numpy", "torch", "transformer", "typing"}, name


def test_only_the_trainer_seeds_torch():
    for path in MODULES:
        assert path.name == "trainer.py" or "manual_seed" not in path.read_text(encoding="utf-8"), path


def test_stages_that_compute_no_model_start_without_torch():
    light = set(DVC) - {"train", "average", "export"}
    code = f"import sys, {', '.join(f'pipeline.{name}' for name in light)}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "False\n"


def test_torchtext_is_imported_by_text_alone_where_it_counts():
    for path in MODULES:
        assert path.name == "text.py" or not [name for name in imports(path) if name.startswith("torchtext")], path
    top = ast.parse((PACKAGE / "text.py").read_text(encoding="utf-8")).body
    assert not [node for node in top if isinstance(node, ast.ImportFrom) and "torchtext" in (node.module or "")]


def test_no_pickle_is_ever_loaded():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert "torch.load" not in text, path
        assert "allow_pickle=True" not in text, path
        assert not {"pickle", "joblib", "cloudpickle"} & imports(path), path


@pytest.mark.parametrize("name", sorted(DVC))
def test_the_deps_of_a_stage_are_the_code_it_imports(name):
    script = STAGES / f"{name}.py"
    code = {path.relative_to(ROOT).as_posix() for path in reached(script)} - HARMLESS
    listed = {dep for dep in DVC[name]["deps"] if dep.endswith(".py")}
    assert listed == code


@pytest.mark.parametrize("name", sorted(DVC))
def test_the_params_of_a_stage_are_the_knobs_it_reads(name):
    script = STAGES / f"{name}.py"
    listed = DVC[name].get("params", [])
    if reads_all(script):
        assert listed == [{"params.yaml": None}]
    else:
        assert set(listed) == knobs_read(script)
        assert len(listed) == len(set(listed))


@pytest.mark.parametrize("name", sorted(DVC))
def test_a_stage_says_what_it_is_and_runs_as_a_module(name):
    assert DVC[name]["desc"]
    assert DVC[name]["cmd"].startswith(f"python -m pipeline.{name}")
    doc = ast.get_docstring(ast.parse((STAGES / f"{name}.py").read_text(encoding="utf-8"))) or ""
    assert doc.startswith(f"Stage {name}: ")
    assert all(word in doc for word in ("Reads ", "Writes ", "Params "))


def test_every_out_of_one_stage_that_another_reads_is_its_dep():
    made = {next(iter(out)) if isinstance(out, dict) else out: stage
            for stage in DVC for kind in ("outs", "metrics", "plots") for out in DVC[stage].get(kind, [])}  # fmt: skip
    for name, stage in DVC.items():
        defaults = {node.value for node in ast.walk(ast.parse((STAGES / f"{name}.py").read_text(encoding="utf-8")))
                    if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
        needed = {path for path in made if path in defaults and made[path] != name}
        if name == "register":
            needed.discard("reports/engines.json")  # read where it is there: nothing waits for compare_engines
        assert needed <= set(stage["deps"]), name


def test_every_recipe_is_a_complete_params_file_that_opens_with_its_command():
    recipes = sorted((ROOT / "recipes").glob("*.yaml"))
    assert {recipe.stem for recipe in recipes} >= {"toy", "copy", "multi30k"}
    for recipe in recipes:
        Params.load(recipe)
        first = recipe.read_text(encoding="utf-8").split("\n")[0]
        assert f"cp recipes/{recipe.name} params.yaml && dvc repro" in first


def test_the_recipe_toy_is_params_yaml_as_shipped():
    assert (ROOT / "recipes/toy.yaml").read_bytes() == (ROOT / "params.yaml").read_bytes()


def test_every_knob_of_params_yaml_is_explained():
    lines = (ROOT / "params.yaml").read_text(encoding="utf-8").split("\n")
    for knob in fields(Params):
        line = next(line for line in lines if line.startswith(f"{knob.name}:"))
        assert "  # " in line, knob.name


def test_the_readme_explains_every_knob_with_its_value_in_the_toy_recipe():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for line in (ROOT / "params.yaml").read_text(encoding="utf-8").split("\n"):
        if found := re.match(r"(\w+): (\S+) +# (.*)$", line):
            assert "| {} | {} | {} |".format(*found.groups()) in readme


def test_the_teams_server_has_the_versions_of_the_lock_and_no_password_on_a_command_line():
    services = YAML(typ="safe").load(ROOT / "compose.yaml")["services"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").split("\n")
    wanted = re.findall(r"(mlflow|psycopg)(?:\[binary\])?==([\d.]+)", services["mlflow"]["build"]["dockerfile_inline"])
    assert {f"{name}=={version}" for name, version in wanted} <= set(lock)
    assert len(wanted) == 2
    assert not any("PASSWORD" in str(service.get("command")) for service in services.values())
