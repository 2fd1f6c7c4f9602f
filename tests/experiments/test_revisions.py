"""Results of commits: read as DVC has them, in a subfolder too, and refused when dvc.lock is not that of the files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from support.projects import command, commit_all
from support.tiny import ROOT

from pipeline import git
from pipeline.experiments.revisions import Experiment, blob_code_key, kept
from pipeline.experiments.stale import checked_out_md5
from pipeline.tracking.results import WorkTree, parsed

FULL = pytest.mark.full
STAGES = "stages:\n  copy: {cmd: cat corpus/a > out && mkdir -p data && cp out data, deps: [DEP, code],"
STAGES += " params: [knob], outs: [out, data]}\n"


def project(root: Path, *options: str) -> Path:
    """Make a folder a DVC project with one stage that reads a folder, not run yet. options: of `dvc init`."""
    (root / "corpus").mkdir(parents=True)
    (root / "code").mkdir()
    (root / "corpus/a").write_text("eins\n")
    (root / "code/some.py").write_text("x = 1\n")
    (root / "params.yaml").write_text("knob: 1\nother: 1\n")
    (root / "dvc.yaml").write_text(STAGES.replace("DEP", "corpus"))
    command(root, "dvc", "init", "-q", *options)
    return root


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "root"
    folder.mkdir()
    command(folder, "git", "init", "-q")
    project(folder)
    commit_all(folder)
    return folder


@pytest.fixture
def root(template, tmp_path, monkeypatch) -> Path:
    """A copy of the project as the current folder."""
    folder = tmp_path / "root"
    shutil.copytree(template, folder, symlinks=True)
    monkeypatch.chdir(folder)
    checked_out_md5.cache_clear()
    return folder


def ran(root: Path) -> None:
    """Run the stage and commit its results."""
    command(root, "dvc", "repro", "-q")
    commit(root)


def commit(root: Path) -> None:
    command(root, "git", "add", "-A", ".")
    command(root, "git", "commit", "-qm", "next")


def edited(root: Path, file: str, text: str) -> None:
    """Write a file and commit it, without running the stage."""
    (root / file).unlink()  # which may be a link into DVC's cache
    (root / file).write_text(text)
    commit(root)


@pytest.mark.parametrize("folder", [pytest.param("", marks=pytest.mark.full), "below/project"])
def test_a_commit_is_read_as_dvc_has_it_in_a_subfolder_too(tmp_path, monkeypatch, folder):
    repository, root = tmp_path / "repository", tmp_path / "repository" / folder
    root.mkdir(parents=True)
    command(repository, "git", "init", "-q")
    project(root, *(["--subdir"] if folder else []))
    commit_all(repository)
    monkeypatch.chdir(root)
    ran(root)
    command(root, "dvc", "exp", "run", "-q", "-S", "knob=2", "--name", "two")
    edited(root, "corpus/a", "zwei\n")
    ran(root)
    first, last = Experiment("HEAD~2"), Experiment("HEAD")
    assert [results.text("params.yaml") for results in (first, Experiment("two"))] == [
        f"knob: {knob}\nother: 1\n" for knob in (1, 2)
    ]
    assert [(results.lines("out"), results.lines("data/out")) for results in (first, last)] == [
        ([word], [word]) for word in ("eins", "zwei")
    ]
    assert first.sha256("data/") != last.sha256("data/") == WorkTree().sha256("data/")
    assert [results.stale() for results in (first, Experiment("HEAD~1"), last)] == ["", "copy (corpus)", ""]
    assert [results.name for results, _ in kept(history=False)] == ["two", last.commit[:10]]
    assert {results.commit for results, _ in kept()} >= {first.commit, last.commit}
    with pytest.raises(ValueError, match=r"HEAD has no reports/scores\.json in git"):
        last.scores()


def test_an_out_that_the_cache_lacks_is_named_with_the_remedy(root):
    ran(root)
    shutil.rmtree(root / ".dvc/cache")
    with pytest.raises(ValueError, match=r"data/out of HEAD is not in DVC's cache\. `dvc exp pull`|data of HEAD"):
        Experiment("HEAD").lines("data/out")


@pytest.mark.parametrize(
    ("file", "text", "stale"),
    [
        pytest.param(
            "dvc.yaml", STAGES.replace("DEP", "corpus").replace("cat ", "cat -n "), "copy (changed command)", marks=FULL
        ),
        ("corpus/a", "zwei\n", "copy (corpus)"),
        pytest.param("params.yaml", "knob: 2\nother: 1\n", "copy (knob)", marks=FULL),
        ("params.yaml", "knob: 1\nother: 2\n", ""),
        pytest.param("code/some.py", "x = (\n", "copy (code)", marks=FULL),
    ],
)
def test_an_edit_that_can_change_results_makes_them_stale(root, file, text, stale):
    ran(root)
    assert Experiment("HEAD").stale() == WorkTree().stale() == ""
    edited(root, file, text)
    assert Experiment("HEAD").stale() == stale


def slash_at_the_end(root: Path) -> None:
    (root / "dvc.yaml").write_text(STAGES.replace("DEP", "corpus/"))


def linked_folder(root: Path) -> None:
    (root / "corpus").rename(root / "elsewhere")
    (root / "corpus").symlink_to("elsewhere")


def converted_ends(root: Path) -> None:
    (root / ".gitattributes").write_text("* text=auto\n")
    (root / "corpus/a").write_bytes(b"eins\r\n")


def ignored_file(root: Path) -> None:
    (root / ".gitignore").write_text(".DS_Store\n/out\n/data\n")
    (root / "corpus/.DS_Store").write_text("x")


def added_to_dvc(root: Path) -> None:
    command(root, "git", "rm", "-qr", "--cached", "corpus")
    command(root, "dvc", "add", "-q", "corpus")


KINDS = [slash_at_the_end, linked_folder, converted_ends, ignored_file]


@pytest.mark.parametrize("kind", [*(pytest.param(kind, marks=FULL) for kind in KINDS), added_to_dvc])
def test_a_corpus_that_git_holds_otherwise_is_not_stale(root, kind):
    kind(root)
    ran(root)
    command(root, "git", "commit", "-q", "--allow-empty", "-m", "later")
    assert Experiment("HEAD").stale() == Experiment("HEAD~1").stale() == ""
    (root / "corpus/a").unlink()
    (root / "corpus/a").write_text("zwei\n")
    if kind is added_to_dvc:
        command(root, "dvc", "add", "-q", "corpus")
    commit(root)
    checked_out_md5.cache_clear()
    assert "corpus" in Experiment("HEAD").stale()


def test_code_with_a_mistake_and_conflicts_end_in_no_traceback(root):
    edited(root, "code/some.py", "def half(:\n")
    assert blob_code_key(git.tree(git.resolved("HEAD"))["code/some.py"])
    with pytest.raises(ValueError, match="not valid YAML"):
        parsed("<<<<<<< HEAD\na: 1\n=======\n")


def test_git_in_a_hook_leaves_the_users_head_alone(root, tmp_path, monkeypatch):
    other = tmp_path / "other"
    shutil.copytree(root, other, symlinks=True)
    (other / "code/some.py").write_text("x = 2\n")
    monkeypatch.setenv("GIT_DIR", str(root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(root / ".git/index"))
    head = git.resolved("HEAD")
    git.command("git", "commit", "-qam", "elsewhere", folder=other)
    assert git.resolved("HEAD") == head != git.command("git", "rev-parse", "HEAD", folder=other).strip()
    assert not git.difference("HEAD", folder=other)


@pytest.mark.parametrize("path", ["dvc.yaml", "dvc.lock", "params.yaml", "versions.yaml", "recipes/wmt14_big.yaml", ""])
def test_the_fast_yaml_parser_gives_equal_values(path):
    odd = "1e-9|1.0e-9|no|on|True|0o14|014|0x1F|1_000|12:30|.inf|~|1.|.5|+1|'1'|2020-01-01|é▁"
    text = (ROOT / path).read_text(encoding="utf-8") if path else "- " + odd.replace("|", "\n- ")
    fast, plain = YAML(typ="safe"), YAML(typ="safe", pure=True)
    assert fast.Parser is not plain.Parser  # ruamel.yaml.clib is installed
    assert repr(fast.load(text)) == repr(plain.load(text))
