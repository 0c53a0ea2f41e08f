"""Every patch is taken by git, and gives exactly the bytes the run would have written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from codemods.findings import FileReport, Report
from codemods.reports import diff
from codemods.source_file import SourceError, SourceFile

BOM = b"\xef\xbb\xbf"


def patch(*names: str) -> bytes:
    """The patch of a run that puts `new` for `old` in each file."""
    reports = []
    for name in names:
        text = SourceFile.read(Path(name)).text
        reports.append(FileReport(name, before=text, after=text.replace("old", "new")))
    return diff.render(Report("0.32.0", tuple(reports), dry_run=True))


def git(*arguments: str, stdin: bytes = b"") -> None:
    done = subprocess.run(["git", *arguments], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")


@pytest.mark.parametrize("name", ["a.py", "models/a b.py", "modèle.py", 'quo"te.py', "back\\slash.py", "tab\tbed.py"])
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"1\n2\n3\n4\nold\n6\n7\n8\n9\n", id="context"),
        pytest.param(b"old\n", id="one-line"),
        pytest.param(b"1\nold", id="no-newline-at-end"),
        pytest.param(b"old\n2", id="no-newline-in-context"),
        pytest.param(b"1\r\nold\r\n3\r\n", id="crlf"),
        pytest.param(b"1\r\nold\n3\rold\x0c4\x1c5", id="mixed-newlines"),
        pytest.param(BOM + b"old\n", id="bom"),
        pytest.param(b"# coding: latin-1\n# \xe9\nold = '\xff'\n", id="latin-1"),
        pytest.param("# 模型\nold\n".encode(), id="utf-8"),
        pytest.param(b"old\n" + b"x\n" * 40 + b"old\n", id="two-hunks"),
        pytest.param(b"--- old\n+++ old\n@@ -1 +1 @@\n", id="looks-like-a-patch"),
    ],
)
def test_git_apply_gives_the_bytes_the_run_would_write(name: str, raw: bytes) -> None:
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(raw)
    text = patch(name)
    git("apply", "--check", "-", stdin=text)
    git("apply", "-", stdin=text)
    assert path.read_bytes() == raw.replace(b"old", b"new")


def test_several_files_make_one_patch() -> None:
    Path("a.py").write_text("old")
    Path("b.py").write_text("same\n")
    Path("c.py").write_text("old\n")
    git("apply", "-", stdin=patch("a.py", "b.py", "c.py"))
    assert [Path(name).read_text() for name in ("a.py", "b.py", "c.py")] == ["new", "same\n", "new\n"]


def test_a_run_in_a_folder_of_a_repository_gives_a_patch_for_that_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sub").mkdir()
    monkeypatch.chdir("sub")
    Path("a.py").write_text("old\n")
    git("apply", "-", stdin=patch("a.py"))
    assert Path("a.py").read_text() == "new\n"


def test_an_absolute_path_below_here_is_made_relative() -> None:
    Path("a.py").write_text("old\n")
    assert patch(str(Path("a.py").absolute())).startswith(b"--- a/a.py\n+++ b/a.py\n")


def test_a_file_elsewhere_is_named_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("..a.py").write_text("old\n")
    Path("here").mkdir()
    monkeypatch.chdir("here")
    assert patch("../..a.py").startswith(f"--- a{tmp_path}/..a.py\n".encode())


def test_a_file_that_changed_since_is_not_patched() -> None:
    Path("a.py").write_text("other\n")
    report = Report("0.32.0", (FileReport("a.py", before="old\n", after="new\n"),), dry_run=True)
    with pytest.raises(SourceError, match=r"a\.py: changed on disk"):
        diff.render(report)
