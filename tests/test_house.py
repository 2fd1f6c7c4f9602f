"""The house is as docs/architecture.md describes it: rooms, their imports, and what dvc.yaml lists for each stage."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from pipeline import versions
from pipeline.identity import CANNOT_CHANGE_A_RESULT
from pipeline.params import Params

ROOT = Path(__file__).parent.parent
PACKAGE, STAGES = ROOT / "transformer", ROOT / "pipeline"
# Files that dvc.yaml lists for a stage through their folder, although the stage does not use them.
ALONG = {
    "transformer/model/averaging.py",
    "transformer/inference/ctranslate2_export.py",
    "transformer/text/encoding.py",
    "transformer/text/blocks.py",
    "transformer/reporting/attention.py",
    "transformer/reporting/sweep_page.py",
}
DVC = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
MODULES = sorted(PACKAGE.rglob("*.py")) + sorted(STAGES.rglob("*.py"))
ROOMS = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))


def name_of(path: Path) -> str:
    """The path of a file in the project."""
    return path.relative_to(ROOT).as_posix()


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
    """A file and all that it imports, directly or not, except what cannot change a result."""
    found, waiting = set(), [path]
    while waiting:
        file = waiting.pop()
        if file not in found and not name_of(file).startswith(CANNOT_CHANGE_A_RESULT):
            found.add(file)
            waiting += ours(file)
    return found


def may_import(room: Path) -> set[str]:
    """The rooms and files that the docstring of a room allows it to import, with the condition in brackets removed."""
    doc = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    _, _, line = doc.partition("May import: ")
    return {re.sub(r" \(.*\)", "", name) for name in line.split(", ")} - {"nothing"}


def test_the_package_has_at_most_nine_rooms_and_seven_files():
    assert len(ROOMS) <= 9
    assert len(list(PACKAGE.glob("*.py"))) <= 7


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_a_room_imports_what_its_docstring_allows_and_holds_nothing_else_there(room):
    text = (room / "__init__.py").read_text(encoding="utf-8")
    assert len(ast.parse(text).body) == 1  # a docstring only
    assert re.match(r'"""[A-Z].*\.\n\nMay import: ', text)
    allowed = may_import(room) | {room.name}
    for path in room.rglob("*.py"):
        used = {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in ours(path)}
        assert used <= allowed, name_of(path)


def test_only_serving_lets_tracking_import_the_inference():
    for path in (PACKAGE / "tracking").glob("*.py"):
        assert path.name == "serving.py" or not any(name.startswith("transformer.inference") for name in imports(path))


def test_no_module_imports_itself_by_way_of_others():
    graphlib.TopologicalSorter({path: ours(path) - {path} for path in MODULES}).prepare()  # raises CycleError


def test_no_room_imports_another_that_imports_it():
    rooms = {room.name: may_import(room) for room in ROOMS}
    graphlib.TopologicalSorter(rooms).prepare()


def test_modules_and_functions_are_short():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 250, name_of(path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                assert lines <= 40, f"{name_of(path)}: {node.name} has {lines} lines"


def test_the_pipeline_shows_its_stages_and_the_door_alone():
    files = {path.stem for path in STAGES.glob("*.py")} - {"__init__", "__main__"}
    assert files == set(DVC)
    assert {path.name for path in STAGES.iterdir() if path.is_dir()} - {"__pycache__"} == {
        "commands",
        "shared",
        "training",
    }


def test_the_package_never_imports_the_pipeline_and_nobody_dvc():
    for path in MODULES:
        roots = {name.split(".")[0] for name in imports(path)}
        assert "dvc" not in roots, path
        assert "pipeline" not in roots or STAGES in path.parents, path


def test_mlflow_is_imported_in_the_room_tracking_alone():
    for path in MODULES:
        roots = {name.split(".")[0] for name in imports(path)}
        assert "mlflow" not in roots or path.parent.name == "tracking", path


def test_the_model_needs_torch_and_numpy_alone():
    for name in ("transformer", "attention", "dropout", "linear"):
        others = {name.split(".")[0] for name in imports(PACKAGE / f"model/{name}.py")}
        assert others <= {"__future__", "collections", "dataclasses", "math", "numpy", "torch", "transformer", "typing"}


def test_only_the_train_step_seeds_torch():
    for path in MODULES:
        assert path.name == "train_step.py" or "manual_seed" not in path.read_text(encoding="utf-8"), path


def test_stages_that_compute_no_model_start_without_torch():
    light = set(DVC) - {"train", "average", "export"}
    code = f"import sys, {', '.join(f'pipeline.{name}' for name in light)}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "False\n"


def test_the_package_itself_starts_without_torch_and_knows_its_public_names():
    code = "import sys, transformer as t; print('torch' in sys.modules, t.Translator.__name__, t.load_model.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False Translator load_model\n"


def test_torchtext_is_imported_by_the_vocabulary_alone_where_it_counts():
    for path in MODULES:
        found = [name for name in imports(path) if name.startswith("torchtext")]
        assert path.name == "vocabulary.py" or not found, path
    top = ast.parse((PACKAGE / "text/vocabulary.py").read_text(encoding="utf-8")).body
    assert not [node for node in top if isinstance(node, ast.ImportFrom) and "torchtext" in (node.module or "")]


def test_no_pickle_is_ever_loaded():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert "torch.load" not in text, path
        assert "allow_pickle=True" not in text, path
        assert not {"pickle", "joblib", "cloudpickle"} & imports(path), path


def settings(path: Path) -> dict[str, set[str]]:
    """The dataclasses of a file, each with the names of its fields."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: {
            part.target.id
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


CONFIGS = {name: names for path in PACKAGE.rglob("*.py") for name, names in settings(path).items() if "Config" in name}


def knobs_read(path: Path) -> set[str]:
    """Knobs that a stage reads, itself or in pipeline/training: params.name, params.only(...), params.take(Config)."""
    known, read = {knob.name for knob in fields(Params)}, set()
    files = {file for file in reached(path) if STAGES in file.parents}
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("params", "self.params"):
            read |= {node.attr} & known
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr == "only":
            read |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
        if node.func.attr == "take":
            given = {keyword.arg for keyword in node.keywords}
            read |= (CONFIGS[ast.unparse(node.args[0])] & known) - given
    return read


def listed_params(stage: dict) -> list[str]:
    """The knobs that dvc.yaml lists for a stage."""
    names: list[str] = []
    for one in stage.get("params", []):
        names += one.get("params.yaml", []) if isinstance(one, dict) else [one]
    return names


def reads_all(path: Path) -> bool:
    """Whether a stage reads every knob: it shows them on a page, or writes the MLflow run."""
    text = path.read_text(encoding="utf-8")
    return "asdict(params)" in text or "pipeline.tracking.content" in text


@pytest.mark.parametrize("name", sorted(DVC))
def test_the_code_among_the_deps_of_a_stage_is_what_it_imports(name):
    code = {name_of(path) for path in reached(STAGES / f"{name}.py")}
    listed = [dep for dep in DVC[name]["deps"] if dep.startswith(("pipeline/", "transformer"))]
    covered: set[str] = set()
    for dep in listed:
        files = {dep} if (ROOT / dep).is_file() else {name_of(file) for file in (ROOT / dep).rglob("*.py")}
        files = {file for file in files if not file.endswith("__init__.py")}
        if dep != "transformer" and not dep.startswith(CANNOT_CHANGE_A_RESULT) and not dep.endswith("templates"):
            assert files - code <= ALONG, f"{dep}: {files - code} cannot change the result of {name}"
        covered |= files
    assert code - covered == set()


@pytest.mark.parametrize("name", sorted(DVC))
def test_the_params_of_a_stage_are_the_knobs_it_reads(name):
    script = STAGES / f"{name}.py"
    if reads_all(script):
        assert {"params.yaml": None} in DVC[name]["params"]
    else:
        listed = listed_params(DVC[name])
        assert set(listed) == knobs_read(script)
        assert len(listed) == len(set(listed))


# Packages that are imported by the code that a stage reaches, and cannot change what it writes.
NEVER = {"filelock", "markupsafe", "psutil", "ruamel", "safetensors", "tqdm"}  # locks, shows, or stores bytes as given
UNUSED = {
    # download asks spaCy whether it knows a language; the others bring bytes whose checksum is known
    "download": {"regex", "requests", "spacy", "urllib3", "zstandard"},
    "encode": {"torchtext"},  # torchtext counts in build_vocab alone
    "back_translate": {"ctranslate2", "torchtext"},  # the torch engine translates
    "train": {"pandas", "spacy", "torchtext"},  # pandas writes the curve, whose numbers are computed before
    "export": {"torchtext"},
    "translate": {"torchtext"},
    "score": {"pandas"},  # prints the scores
    "attention": {"ctranslate2", "torchtext"},
    "compare_engines": {"torchtext"},
}
DISTRIBUTION = {"jinja2": "Jinja2", "subword_nmt": "subword-nmt", "vl_convert": "vl-convert-python"}


@pytest.mark.parametrize("name", sorted(set(DVC) - {"record"}))
def test_the_versions_that_a_stage_depends_on_are_those_of_the_packages_its_code_computes_with(name):
    roots = {module.split(".")[0] for path in reached(STAGES / f"{name}.py") for module in imports(path)}
    roots -= {"transformer", "pipeline", *NEVER, *sys.stdlib_module_names}
    assert UNUSED.get(name, set()) <= roots
    wanted = {DISTRIBUTION.get(root, root) for root in roots - UNUSED.get(name, set())}
    listed = versions.of_stage(DVC[name])
    assert set(listed) == wanted
    assert len(listed) == len(wanted)


def test_the_run_depends_on_all_versions_that_versions_yaml_records_from_the_lock():
    assert {versions.RECORD: None} in DVC["record"]["params"]
    listed = {package for stage in DVC.values() for package in versions.of_stage(stage)}
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").split("\n")
    locked = dict(line.split("==") for line in lock if "==" in line and not line.startswith("#"))
    assert versions.recorded() == {package: locked[package] for package in listed}
    assert versions.text(versions.recorded()) == (ROOT / versions.RECORD).read_text(encoding="utf-8")


def test_download_depends_on_the_lock_of_each_corpus_that_it_can_download():
    locks = {f"corpora/{path.name}" for path in (ROOT / "corpora").glob("*.lock")}
    assert locks <= set(DVC["download"]["deps"])


@pytest.mark.parametrize("name", sorted(DVC))
def test_a_stage_names_itself_and_runs_as_a_module(name):
    assert DVC[name]["desc"]
    assert DVC[name]["cmd"] == f"python -m pipeline.{name}"  # words that mean the same in bash, zsh, dash and fish
    doc = ast.get_docstring(ast.parse((STAGES / f"{name}.py").read_text(encoding="utf-8"))) or ""
    assert doc.startswith(f"Stage {name}: ")
    assert all(word in doc for word in ("Reads ", "Writes ", "Params "))


def test_every_out_of_one_stage_that_another_reads_is_its_dep():
    made = {
        next(iter(out)) if isinstance(out, dict) else out: stage
        for stage in DVC
        for kind in ("outs", "metrics", "plots")
        for out in DVC[stage].get(kind, [])
    }
    for name, stage in DVC.items():
        defaults = {
            node.value
            for node in ast.walk(ast.parse((STAGES / f"{name}.py").read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        needed = {path for path in made if path in defaults and made[path] != name}
        if name == "record":
            needed.discard("reports/engines.json")  # read where it is there: nothing waits for compare_engines
        read = {path for path in needed if any(f"{dep}/".startswith(f"{path}/") for dep in stage["deps"])}  # or parts
        assert needed == read, name


def test_no_stage_depends_on_a_file_inside_a_folder_that_another_writes():
    """In an experiment DVC loads such a folder as the last commit has it, and fails if its cache lacks that one."""
    outs = [out for stage in DVC.values() for out in stage.get("outs", []) if isinstance(out, str)]
    for name, stage in DVC.items():
        inside = [dep for dep in stage["deps"] if any(dep.startswith(f"{out}/") for out in outs)]
        assert not inside, f"{name}: {inside}"


def test_dvc_yaml_is_a_page_one_reads():
    assert (ROOT / "dvc.yaml").read_text(encoding="utf-8").count("\n") < 200


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


def test_the_teams_server_has_the_versions_of_the_lock_and_no_password_on_a_command_line():
    services = YAML(typ="safe").load(ROOT / "deploy/compose.yaml")["services"]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").split("\n")
    image = services["mlflow"]["build"]["dockerfile_inline"]
    wanted = re.findall(r"(mlflow|flask-wtf|psycopg)(?:\[binary\])?==([\d.]+)", image)
    assert {f"{name}=={version}" for name, version in wanted} <= set(lock)
    assert len(wanted) == 3
    assert not any("PASSWORD" in str(service.get("command")) for service in services.values())


def test_dvc_lock_has_the_stages_of_dvc_yaml():
    assert set(YAML(typ="safe").load(ROOT / "dvc.lock")["stages"]) == set(DVC)
