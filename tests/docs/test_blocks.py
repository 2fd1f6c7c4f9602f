"""The blocks of README.md, CONTRIBUTING.md and docs/ work as written.

Python blocks are run. Of each shell line it is checked that its programs, commands, options, knobs and files exist; the
full tests run each line in one prepared project, in the order of the pages, but for those that NOT_RUN excepts.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pages import NAMES, OUTPUT, PYTHON, SHELL, Block, blocks, read, shell_lines
from support.projects import command, environment, prepared_project
from support.tiny import ROOT, model_folder

from pipeline.__main__ import COMMANDS
from pipeline.workflow.params import Params
from transformer.inference.ctranslate2_export import add_export

# The lines that are not run, as the patterns of their words, with the reasons. What they do has tests of its own.
NOT_RUN = {
    r"make|pip install|\. \.venv|pytest": "installs packages, or runs tests",
    r"mlflow ui|pipeline ui|serve|curl|caddy|mlflow_server|openssl|secrets|sudo": "a server, which does not end",
    r"docker|sbatch": "needs a cluster",
    r"dvc queue start": "starts workers that outlive the test",
    r"multi30k|iwslt2017|wmt14|captions|table3|base-1|flores200": "needs the network",
    r"gpu|NODES=|benchmarks": "needs a GPU, several machines or other programs",
    r"pipeline search": "takes minutes",
    r"git worktree|^cd |repro --force|git diff": "one block, which has a test of its own below",
    r"dvc (remote|push|pull|exp p)|MLFLOW_TRACKING_U": "needs a remote and a server",
}
BLOCKS = [block for name in NAMES for block in blocks(name, read(name))]
PROGRAM = "docs/walkthrough.md"  # its blocks of Python are one program; test_walkthrough.py runs it
LINES = [place_and_line for block in BLOCKS if block.kind in SHELL for place_and_line in shell_lines(block)]
PROGRAMS = (
    ". caddy cd cp curl docker echo export git head jupyter ls mkdir mlflow openssl pip sacrebleu sbatch sudo xargs"
)
RUN = [(place, line) for place, line in LINES if not re.search("|".join(NOT_RUN), line)]


def mistakes(line: str) -> Iterator[str]:
    """What a command line names that does not exist."""
    words = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
    words.whitespace_split = True
    part: list[str] = []
    for word in [*words, "&&"]:
        if word in ("&&", "||", "|", ";"):
            yield from mistakes_of([word for word in part if word])
            part = []
        elif not part and re.match(r"[A-Z_]+=", word):
            continue  # a variable of the environment
        else:
            part.append(word)


def mistakes_of(words: list[str]) -> Iterator[str]:
    """`mistakes` of one command."""
    words = words[: next((place for place, word in enumerate(words) if word in "<>"), len(words))]
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE)
        yield from (word for word in rest if word not in targets and "=" not in word)
    elif program == "dvc":
        yield from mistakes_of_dvc(rest)
    elif program == "python":
        yield from mistakes_of_python(rest)
    elif f" {program} " not in f" {PROGRAMS} ":
        yield program
    yield from (word for word in rest if word.startswith(("recipes/", "tests/")) and not (ROOT / word).exists())


def mistakes_of_dvc(words: list[str]) -> Iterator[str]:
    """`mistakes` of a dvc command: what its parser refuses, and knobs that params.yaml does not have."""
    from dvc.cli import DvcParserError, parse_args

    try:
        given = parse_args(words)
    except (DvcParserError, SystemExit):
        yield f"dvc {shlex.join(words)}"
        return
    for override in getattr(given, "set_param", None) or []:
        if override.split("=")[0] not in Params.model_fields:
            yield override


def mistakes_of_python(words: list[str]) -> Iterator[str]:
    """`mistakes` of python -m MODULE: the module, the command behind `python -m pipeline`, options; or of a file."""
    if words[0].endswith(".py"):
        words = ["-m", words[0].removesuffix(".py").replace("/", "."), *words[1:]]
    module, *rest = words[1:]
    if module == "pytest":
        return
    if module == "pipeline":
        if not rest:
            return
        if rest[0] not in COMMANDS:
            yield f"python -m pipeline {' '.join(rest)}"
            return
        module, rest = COMMANDS[rest[0]][0], rest[1:]
    spec = find_spec(module)
    if spec is None:
        yield module
        return
    main = find_spec(f"{module}.__main__") if spec.submodule_search_locations else spec
    source = Path(main.origin).read_text(encoding="utf-8")
    for word in rest:
        if word.startswith("--") and word != "--help" and f'"{word}"' not in source:
            yield word


def test_every_block_says_its_language():
    for block in BLOCKS:
        assert block.kind in (*SHELL, *PYTHON, *OUTPUT, "math"), f"{block}: {block.kind}"


@pytest.mark.parametrize(("place", "line"), LINES, ids=[place for place, _ in LINES])
def test_a_shell_line_names_commands_options_knobs_and_files_that_exist(place, line):
    assert list(mistakes(line)) == []


@pytest.fixture(scope="module")
def folder_with_models(tmp_path_factory) -> Path:
    """A folder with a random model, as data/model."""
    folder = tmp_path_factory.mktemp("models")
    model = model_folder(folder / "data/model")
    add_export(model, model, "float32")
    return folder


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.kind in PYTHON if block.page != PROGRAM], ids=str)
def test_a_python_block_runs(block: Block, folder_with_models: Path, monkeypatch, capsys):
    monkeypatch.chdir(folder_with_models)
    exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


@pytest.fixture(scope="module")
def project(tmp_path_factory, shared_folder) -> Path:
    """A small project that was run, with two experiments, a folder of text and two more models."""
    folder = prepared_project(shared_folder, tmp_path_factory.mktemp("pages") / "project")
    for name in ("README.md", "CONTRIBUTING.md", "docs", "Makefile"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    command(folder, sys.executable, "-m", "pipeline", "plots_template")
    for name, override in (("EXP1", "beam_size=2"), ("EXP2", "beam_size=3")):
        command(folder, "dvc", "exp", "run", "-n", name, "-S", override)
    shutil.copytree(folder / "own", folder / "my_folder")
    sides = ((folder / f"own/train.{code}").read_text().split("\n")[:-1] for code in ("de", "en"))
    (folder / "my_pairs.csv").write_text("de,en\n" + "".join(f"{de},{en}\n" for de, en in zip(*sides, strict=True)))
    for name in ("run1", "run2"):
        shutil.copytree(folder / "data/model", folder / name / "model")
    return folder


def run_shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run lines of a page in a folder, as a person types them."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.full
@pytest.mark.parametrize(("place", "line"), RUN, ids=[place for place, _ in RUN])
def test_a_shell_line_runs(place, line, project):
    if "pictures" in line and not shutil.which("chromium"):
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    done = run_shell(line, project)
    assert done.returncode == 0, f"{place}: {line}\n{done.stdout}"


@pytest.mark.full
def test_a_result_repeats_by_the_lines_of_the_page(shared_folder, tmp_path):
    (block,) = [block for block in BLOCKS if "git worktree add" in block.text]
    folder, again = prepared_project(shared_folder, tmp_path / "project"), tmp_path / "again"
    done = run_shell(block.text, folder)
    assert done.returncode == 0, done.stdout
    assert "Running stage 'train'" in done.stdout
    assert "diff --git" not in done.stdout
    assert list(again.glob("work/train-*"))  # it did not resume from the state of the first training
    (again / "own/test.en").write_text(12 * "one.\n", encoding="utf-8")
    edited = run_shell(f"dvc repro download\n{block.text.split(chr(10))[-1]}", again)
    assert "diff --git" in edited.stdout
