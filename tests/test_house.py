"""The house: rooms and what they may import; what dvc.yaml lists for each stage; recipes; rules for the whole code."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from zipfile import ZipFile

import pytest
from ruamel.yaml import YAML

from pipeline.training.identity import CHANGES_NO_RESULT
from pipeline.workflow import versions
from pipeline.workflow.params import Params, parse_yaml

ROOT = Path(__file__).parent.parent
DVC = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for folder in ("transformer", "pipeline")
    for path in (ROOT / folder).rglob("*.py")
}
ROOMS = sorted(name.removesuffix("/__init__.py") for name in TREES if re.fullmatch(r"\w+/\w+/__init__\.py", name))
ABOVE_ALL = {"transformer/__init__.py", "transformer/__main__.py", "pipeline/__init__.py", "pipeline/__main__.py"}


def imports(name: str) -> set[str]:
    """Dotted names of the modules that a file imports, at the top or inside a function."""
    names = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


IMPORTS = {name: imports(name) for name in TREES}
PACKAGES = {name: {module.split(".")[0] for module in modules} for name, modules in IMPORTS.items()}
OURS = {
    name: {file for module in modules if (file := module.replace(".", "/") + ".py") in TREES}
    for name, modules in IMPORTS.items()
}


def reached(name: str, follows: Callable[[str], bool] = lambda file: True) -> set[str]:
    """A file and the files of this project that it imports, directly or not, as far as `follows` says."""
    files, waiting = set(), [name]
    while waiting:
        if (file := waiting.pop()) not in files and follows(file):
            files.add(file)
            waiting += OURS[file]
    return files


# What hides passwords, serves and tracks changes no out of a stage either, and is a dep of record alone.
CHANGES_NO_OUT = (*CHANGES_NO_RESULT, "transformer/credentials.py", "transformer/serving/", "pipeline/__init__.py")
CHANGES_NO_OUT += ("pipeline/tracking/",)


def code_of(stage: str) -> set[str]:
    """The files that can change the outs of a stage: all that it imports but what runs and tracks stages."""
    return reached(f"pipeline/{stage}.py", lambda file: not file.startswith(CHANGES_NO_OUT))


def place_of(name: str) -> str:
    """The room of a file, or the file if it is in no room: "text", "files"."""
    return Path(name).parts[1].removesuffix(".py")


def may_import(room: str) -> set[str]:
    """The rooms and files that the docstring of a room allows it to import."""
    line = (ast.get_docstring(TREES[f"{room}/__init__.py"]) or "").partition("\n\nMay import: ")[2]
    return set(line.split(", ")) - {"nothing"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_its_docstring_allows(room):
    init = TREES[f"{room}/__init__.py"]
    assert len(init.body) == 1, "an __init__.py has a docstring only"
    assert re.match(r"[A-Z].*\.\n\nMay import: ", ast.get_docstring(init) or "", flags=re.DOTALL)
    top = room.split("/")[0]
    files = (file for name in TREES if name.startswith(f"{room}/") for file in OURS[name] if file.startswith(f"{top}/"))
    used = {place_of(file) for file in files} - {Path(room).name}
    assert used == may_import(room) or (used < may_import(room) and top == "transformer")


def test_no_module_and_no_room_imports_itself_by_way_of_others():
    graphlib.TopologicalSorter({name: files - {name} for name, files in OURS.items()}).prepare()  # raises CycleError
    rooms = {room: {f"{Path(room).parent}/{name}" for name in may_import(room)} for room in ROOMS}
    graphlib.TopologicalSorter(rooms).prepare()


def test_a_stage_script_imports_its_own_room_at_most():
    rooms = {"train": {"training", "tracking"}, "back_translate": {"training"}, "record": {"tracking"}}
    for name in (name for name in TREES if re.fullmatch(r"pipeline/\w+\.py", name) and name not in ABOVE_ALL):
        places = {place_of(file) for file in OURS[name] if file.startswith("pipeline/")}
        assert places - {"__init__"} <= {"workflow"} | rooms.get(Path(name).stem, set()), name


def test_pipeline_lists_the_stages_of_dvc_yaml_and_nothing_else():
    assert {path.stem for path in (ROOT / "pipeline").glob("*.py")} == {*DVC, "__init__", "__main__"}


def test_rooms_and_libraries_stand_where_they_belong():
    assert len([room for room in ROOMS if room.startswith("transformer/")]) <= 9
    rooms = {Path(room).name for room in ROOMS if room.startswith("pipeline/")}
    assert rooms == {"workflow", "training", "tracking", "results", "search", "corpus"}
    for name, packages in PACKAGES.items():
        assert "pipeline" not in packages or name.startswith("pipeline/"), name
        dvc = ("pipeline/workflow/dvc_lock.py", "pipeline/results/", "pipeline/search/")
        assert "dvc" not in packages or name.startswith(dvc), name
        mlflow = ("transformer/serving/mlflow_model.py", "pipeline/tracking/", "pipeline/results/")
        assert "mlflow" not in packages or name.startswith(mlflow), name
        assert "torchtext" not in packages or name == "transformer/text/vocabulary.py", name
        assert not packages & {"pickle", "joblib", "cloudpickle"}, name
    standard = sys.stdlib_module_names | {"numpy", "torch", "transformer"}
    for name in ("attention", "cpu", "transformer"):
        assert PACKAGES.get(f"transformer/model/{name}.py", set()) <= standard, name


def test_stages_and_tokenizers_without_a_model_start_without_torch():
    light = DVC.keys() - {"train", "back_translate", "average", "export"}
    modules = ", ".join(f"pipeline.{name}" for name in light)
    code = "from importlib.machinery import ModuleSpec; __spec__ = ModuleSpec('pipeline.tokenise', None)"  # as by -m
    code += f"; import sys, transformer, {modules}; from transformer.text.languages import tokenizer; tokenizer('de')"
    code += "; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_no_pickle_is_loaded_and_one_module_seeds_torch():
    makers = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/make").glob("*.py")}
    for name in {*TREES, *makers}:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "torch.load" not in text, name
        assert "allow_pickle=True" not in text, name
        assert "manual_seed" not in text or name == "transformer/training/train_step.py" or name in makers, name


@pytest.mark.parametrize("stage", sorted(DVC))
def test_the_deps_of_a_stage_cover_its_code_and_no_more(stage):
    code = code_of(stage)
    deps = [dep for dep in DVC[stage]["deps"] if dep.startswith(("pipeline/", "transformer"))]
    covered = {dep: {file for file in code if f"{file}/".startswith(f"{dep}/")} for dep in deps}
    assert code == set().union(*covered.values())
    assert all(covered.values()), covered


@cache
def fields() -> dict[str, set[str]]:
    """The annotated fields of each class of this project."""
    classes = [node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {
        node.name: {ast.unparse(part.target) for part in node.body if isinstance(part, ast.AnnAssign)}
        for node in classes
    }


def knobs_read(stage: str) -> set[str]:
    """The knobs that a stage reads, itself or in pipeline/training: params.name, params.take(Config, other=...)."""
    knobs = set[str]()
    for node in (node for file in code_of(stage) if file.startswith("pipeline/") for node in ast.walk(TREES[file])):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[-1] == "params":
            knobs |= {node.attr}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "take":
            knobs |= fields()[ast.unparse(node.args[0])] - {keyword.arg for keyword in node.keywords}
    return knobs & Params.model_fields.keys()


def listed(stage: str, file: str) -> list[str] | None:
    """The names of params in a file that dvc.yaml lists for a stage; None: all of the file."""
    entries = [entry if isinstance(entry, dict) else {"params.yaml": [entry]} for entry in DVC[stage].get("params", [])]
    lists = [entry[file] for entry in entries if file in entry]
    return None if None in lists else [name for names in lists for name in names]


@pytest.mark.parametrize("stage", sorted(DVC))
def test_the_params_of_a_stage_are_the_knobs_it_reads(stage):
    names = listed(stage, "params.yaml")
    if stage in ("report", "record"):  # they show or write all
        assert names is None
    else:
        assert sorted(names or []) == sorted(knobs_read(stage))


# Packages that are imported by the code that a stage reaches, and cannot change what it writes; langcodes: how codes
# of languages are spelt.
NEVER = {"annotated_types", "filelock", "langcodes", "markupsafe", "psutil", "ruamel", "safetensors", "tqdm"}
UNUSED = {
    # download asks spaCy whether it knows a language; polib reads a format that is the same for all; the others bring
    # bytes whose checksum is known
    "download": {"polib", "regex", "requests", "spacy", "urllib3"},
    "filter": {"spacy"},  # only codes of languages are read
    "encode": {"torchtext"},  # torchtext builds the vocabulary in build_vocab alone
    "back_translate": {"ctranslate2", "torchtext", "pandas"},  # the torch engine translates
    "average": {"torchtext"},
    "train": {"pandas", "spacy", "torchtext"},  # pandas writes the curve, whose numbers are computed before
    "export": {"torchtext"},
    "translate": {"torchtext"},
    "score": {"pandas"},  # prints the scores
    "attention": {"ctranslate2", "torchtext"},
    "compare_engines": {"torchtext"},
}
DISTRIBUTION = {"jinja2": "Jinja2", "subword_nmt": "subword-nmt", "vl_convert": "vl-convert-python"}


@pytest.mark.parametrize("stage", sorted(DVC.keys() - {"record"}))
def test_a_stage_depends_on_the_versions_it_computes_with(stage):
    packages = {package for file in code_of(stage) for package in PACKAGES[file]}
    packages -= {"transformer", "pipeline", *NEVER, *UNUSED.get(stage, ()), *sys.stdlib_module_names}
    assert sorted(listed(stage, versions.VERSIONS) or []) == sorted(DISTRIBUTION.get(name, name) for name in packages)


EXTRAS = ("torch", "serve", "corpora", "reports", "pipeline", "dev")  # what `make setup` installs


def plain(name: str) -> str:
    """The name of a package as packagers compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def locked_versions() -> dict[str, str]:
    """The version of each package in requirements.lock."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"(?m)^([\w-]+)==(\S+)", text))


def test_the_lock_file_has_what_pyproject_names_and_pyproject_what_is_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = {
        re.split(r"[\[><=]", name)[0]
        for name in (*project["dependencies"], *(name for extra in EXTRAS for name in extras[extra]))
    } - {project["name"]}
    locked = locked_versions()
    assert {name.lower().replace(".", "-") for name in named} <= set(locked)
    listed, packages = {plain(name) for name in named}, packages_distributions()
    imported = {name.split(".")[0] for file in TREES for name in imports(file)} - {
        "pipeline",
        "transformer",
        "_typeshed",
    }
    lacking = {name for name in imported - sys.stdlib_module_names if not listed & set(map(plain, packages[name]))}
    assert lacking == set(), "pyproject.toml names each package that is imported"


def test_the_wheel_has_the_package_and_its_templates_alone_and_one_version_stands_everywhere(tmp_path):
    words = ["-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = subprocess.run(["git", "ls-files", "transformer"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert names == set(listed.stdout.split())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert parse_yaml((ROOT / "CITATION.cff").read_text(encoding="utf-8"), "CITATION.cff")["version"] == version
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_versions_yaml_records_what_stages_list_as_the_lock_has_it():
    assert listed("record", versions.VERSIONS) is None
    packages = {package for stage in DVC.values() for package in versions.packages_of(stage)}
    locked = locked_versions()
    assert versions.recorded_versions() == {package: locked[package.lower().replace(".", "-")] for package in packages}
    assert versions.text(versions.recorded_versions()) == (ROOT / versions.VERSIONS).read_text(encoding="utf-8")


@pytest.mark.parametrize("stage", sorted(DVC))
def test_a_stage_names_itself_and_runs_as_a_module(stage):
    assert DVC[stage]["desc"]
    assert DVC[stage]["cmd"] == f"python -m pipeline.{stage}"  # words that mean the same in bash, zsh, dash and fish
    doc = ast.get_docstring(TREES[f"pipeline/{stage}.py"]) or ""
    assert doc.startswith(f"Stage {stage}: ")
    assert all(word in doc for word in ("Reads ", "Writes ", "Params "))


def test_a_new_metric_repeats_no_training():
    for stage in ("back_translate", "train"):
        assert [dep for dep in DVC[stage]["deps"] if "evaluation" in dep] == ["transformer/evaluation/bleu.py"]


def outs(stage: str) -> set[str]:
    """The paths of all that a stage writes."""
    entries = [out for kind in ("outs", "metrics", "plots") for out in DVC[stage].get(kind, [])]
    return {next(iter(out)) if isinstance(out, dict) else out for out in entries}


def test_an_out_that_another_stage_reads_is_its_dep():
    makers = {out: stage for stage in DVC for out in outs(stage)}
    for stage, entry in DVC.items():
        tree = ast.walk(TREES[f"pipeline/{stage}.py"])
        texts = {node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        read = {out for out in makers if out in texts and makers[out] != stage}
        assert read <= set(entry["deps"]), stage
        # In an experiment DVC loads a folder of which a part is a dep as the last commit has it; its cache may lack it.
        assert not [dep for dep in entry["deps"] for out in makers if dep.startswith(f"{out}/")], stage


KNOB = re.compile(r"(\w+): (.+?) {2,}# (?:\(toy: (.+?)\) )?(.*)")


def knobs_of(recipe: Path) -> dict[str, tuple[str, ...]]:
    """The lines of a recipe: knob -> value, the value of toy that the line names, and the remark."""
    lines = [line for line in recipe.read_text(encoding="utf-8").split("\n") if re.match(r"\w+:", line)]
    knobs = [knob for line in lines if (knob := KNOB.fullmatch(line))]
    assert len(knobs) == len(lines)
    return {knob[1]: knob.group(2, 3, 4) for knob in knobs}


@pytest.mark.parametrize("recipe", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_is_complete_and_marks_what_differs_from_toy(recipe):
    Params.load(recipe)
    toy = knobs_of(ROOT / "recipes/toy.yaml")
    for name, (value, marked, remark) in knobs_of(recipe).items():
        assert (marked or value, remark) == (toy[name][0], toy[name][2])
        assert marked != value
    text = recipe.read_text(encoding="utf-8")
    assert f"cp recipes/{recipe.name} params.yaml && dvc repro" in text.split("\n")[0]
    assert text.count("# --- ") == 8


def test_each_row_of_table_3_changes_the_base_in_its_own_way():
    base = Params.load(ROOT / "recipes/table3.yaml")
    rows = (ROOT / "recipes/table3.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
    changes = [[setting.replace("=", ": ") for setting in row.split(" -S ")[1:]] for row in rows]
    models = [base.replace(**parse_yaml("\n".join(lines) or "{}", "the row")) for lines in changes]
    assert models[0] == base
    assert all(models.count(model) == 1 for model in models)


def test_params_yaml_as_shipped_is_the_recipe_toy():
    assert (ROOT / "recipes/toy.yaml").read_bytes() == (ROOT / "params.yaml").read_bytes()
    assert list(knobs_of(ROOT / "params.yaml")) == list(Params.model_fields)
