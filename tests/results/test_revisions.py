"""Result of commits: read as DVC has them, in a subfolder too, and refused when dvc.lock is not that of the files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pipeline.experiments import md5, revisions
from pipeline.experiments import stale as stale_module
from ruamel.yaml import YAML
from support.projects import command, commit_all
from support.tiny import ROOT

from pipeline.workflow import git
from pipeline.workflow.dvc_lock import Result, blob_code_key, check_unedited, stale, stored_results

FULL = pytest.mark.full
STAGES = "stages:\n  copy: {cmd: cat corpus/a > out && mkdir -p data && cp out data, deps: [DEP, code],"
STAGES += " params: [knob], outs: [out, data]}\n"


def project(root: Path, *options: str) -> Path:
    """Make a folder a DVC project with one stage that reads a folder, not run yet. options: of `dvc init`."""
    (root / "corpus").mkdir(parents=True)
    (root / "code/some").mkdir(parents=True)
    (root / "code/some/more.py").touch()  # DVC sorts it after code/some.py, as strings
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
    forget()
    return folder


def forget() -> None:
    """Forget what the functions of a command remember, as the next command does."""
    for function in (value for module in (md5, revisions, stale_module) for value in vars(module).values()):
        getattr(function, "cache_clear", int)()


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
    (root / "code/some.py").write_text("x = 2\n")
    ran(root)
    first, last = Result("HEAD~2"), Result("HEAD")
    assert [results.text("params.yaml") for results in (first, Result("two"))] == [
        f"knob: {knob}\nother: 1\n" for knob in (1, 2)
    ]
    assert [(results.lines("out"), results.lines("data/out")) for results in (first, last)] == [
        ([word], [word]) for word in ("eins", "zwei")
    ]
    assert first.sha256("data/") != last.sha256("data/") == Result().sha256("data/")
    assert [stale(results) for results in (first, Result("HEAD~1"), last)] == ["", "copy (corpus)", ""]
    assert [results.name for results, _ in stored_results(history=False)] == ["two", last.commit[:10]]
    assert {results.commit for results, _ in stored_results()} >= {first.commit, last.commit}
    with pytest.raises(ValueError, match=r"HEAD has no reports/scores\.json in git"):
        last.scores()


def test_a_detached_head_has_the_results_before_it(root):
    command(root, "git", "checkout", "-q", "--detach")
    ran(root)
    ran_before = git.resolve("HEAD")
    edited(root, "code/some.py", "x = 2\n")
    assert [results.commit for results, _ in stored_results()] == [git.resolve("HEAD"), ran_before]


def test_an_out_that_the_cache_lacks_is_named_with_the_remedy(root):
    ran(root)
    shutil.rmtree(root / ".dvc/cache")
    with pytest.raises(ValueError, match=r"data/out of HEAD is not in DVC's cache\. `dvc exp pull`|data of HEAD"):
        Result("HEAD").lines("data/out")


@pytest.mark.parametrize(
    ("file", "text", "stages"),
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
def test_an_edit_that_can_change_results_makes_them_stale(root, file, text, stages):
    ran(root)
    assert stale(Result("HEAD")) == stale(Result()) == ""
    edited(root, file, text)
    assert stale(Result("HEAD")) == stages


def git_lfs(root: Path) -> None:
    """What git LFS does: git has a pointer in place of the content, without which a work tree is not checked out."""
    command(root, "git", "config", "filter.lfs.clean", "sed s/^/pointer-/")
    command(root, "git", "config", "filter.lfs.smudge", "sed s/^pointer-//")
    (root / ".gitattributes").write_text("corpus/* filter=lfs\n")
    command(root, "git", "add", "--renormalize", ".")


def dvc_has(*paths: str):
    """A kind of corpus: these files or folders are given to DVC."""

    def kind(root: Path) -> None:
        command(root, "git", "rm", "-qr", "--cached", "corpus")
        command(root, "dvc", "add", "-q", *paths)

    return kind


def in_git(root: Path) -> None:
    """As the template keeps it."""


IN_DVC = [dvc_has("corpus/a"), dvc_has("corpus")]
CASES = [in_git, git_lfs, IN_DVC[0], pytest.param(IN_DVC[1], marks=FULL)]


@pytest.mark.parametrize("kind", CASES)
def test_each_way_to_keep_a_corpus_has_fresh_and_stale_results(root, kind, capsys):
    """An older result is fresh or, where git does not have the bytes that DVC read, not compared."""
    kind(root)
    ran(root)
    command(root, "git", "commit", "-q", "--allow-empty", "-m", "later")
    assert [stale(Result(name)) for name in ("HEAD", "HEAD~1")] == ["", ""]
    for word, run in (("zwei", ran), ("drei", commit)):
        (root / "corpus/a").unlink()
        (root / "corpus/a").write_text(f"{word}\n")
        for path in root.rglob("*.dvc") if kind in IN_DVC else ():
            if path.is_file():
                command(root, "dvc", "add", "-q", str(path.relative_to(root).with_suffix("")))
        run(root)
    forget()
    assert [bool(stale(Result(name))) for name in ("HEAD", "HEAD~1", "HEAD~3")] == [True, False, False]
    assert ("was not compared" in capsys.readouterr().err) == (kind is git_lfs)


def test_an_input_outside_of_git_is_not_compared(root, capsys):
    command(root, "git", "rm", "-qr", "--cached", "corpus")
    (root / ".gitignore").write_text("/corpus\n/out\n/data\n")
    ran(root)
    assert not stale(Result("HEAD"))
    assert (
        "remark: corpus was not compared, because git does not have the bytes that DVC reads."
        in capsys.readouterr().err
    )


SCORE = "  score: {cmd: mkdir -p reports && cp out reports/scores.json, deps: [out], outs: [reports/scores.json]}\n"


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        pytest.param("params.yaml", "knob: 1\nother: 2\n", "", marks=FULL),
        ("params.yaml", "knob: 2\nother: 1\n", "knob"),
        pytest.param("code/some.py", "x = 2\n", "code", marks=FULL),
        ("reports/scores.json", "zwei\n", "reports/scores.json"),
        (
            "dvc.yaml",
            STAGES.replace("DEP", "corpus") + SCORE.replace("json, deps", "json \\&\\& echo >> out, deps"),
            "out",
        ),
    ],
)
def test_no_run_is_written_of_results_whose_inputs_or_outs_were_edited(root, file, text, named):
    """The last case edits an out while a later stage reads it."""
    (root / "dvc.yaml").write_text(STAGES.replace("DEP", "corpus") + SCORE)
    command(root, "dvc", "repro", "-q")
    check_unedited(Result())
    (root / file).write_text(text.replace("\\", ""))
    forget()
    if file == "dvc.yaml":
        command(root, "dvc", "repro", "-q")
    if not named:
        return check_unedited(Result())
    with pytest.raises(ValueError, match=f"^{named} changed while or after stage"):
        check_unedited(Result())
    return None


def test_code_with_a_mistake_ends_in_no_traceback(root):
    edited(root, "code/some.py", "def half(:\n")
    assert blob_code_key(git.tree(git.resolve("HEAD"))["code/some.py"])


def test_git_in_a_hook_leaves_the_users_head_alone(root, tmp_path, monkeypatch):
    other = tmp_path / "other"
    shutil.copytree(root, other, symlinks=True)
    (other / "code/some.py").write_text("x = 2\n")
    monkeypatch.setenv("GIT_DIR", str(root / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(root / ".git/index"))
    head = git.resolve("HEAD")
    git.command("git", "commit", "-qam", "elsewhere", folder=other)
    assert git.resolve("HEAD") == head != git.command("git", "rev-parse", "HEAD", folder=other).strip()
    assert not git.difference("HEAD", folder=other)


@pytest.mark.parametrize("path", ["dvc.yaml", "dvc.lock", "params.yaml", "versions.yaml", "recipes/wmt14_big.yaml", ""])
def test_the_fast_yaml_parser_gives_equal_values(path):
    odd = "1e-9|1.0e-9|no|on|True|0o14|014|0x1F|1_000|12:30|.inf|~|1.|.5|+1|'1'|2020-01-01|é▁"
    text = (ROOT / path).read_text(encoding="utf-8") if path else "- " + odd.replace("|", "\n- ")
    fast, plain = YAML(typ="safe"), YAML(typ="safe", pure=True)
    assert fast.Parser is not plain.Parser  # ruamel.yaml.clib is installed
    assert repr(fast.load(text)) == repr(plain.load(text))
