"""Which files a run reads, in which order, and what it says about the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from codemods.discover import Discovery, discover


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def touch(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def found(*paths: str) -> list[str]:
    return [path.as_posix() for path in discover([Path(path) for path in paths]).files]


def test_a_folder_gives_its_python_files_in_path_order() -> None:
    touch("m/b.py", "m/a/z.py", "m/a.py", "m/notes.md", "m/stub.pyi", "m/b/c/d.py")
    assert found("m") == ["m/a/z.py", "m/a.py", "m/b/c/d.py", "m/b.py"]


def test_the_current_folder_gives_bare_names() -> None:
    touch("a.py", "b/c.py")
    assert found(".") == ["a.py", "b/c.py"]


def test_order_and_repetition_of_the_given_paths_do_not_matter() -> None:
    touch("a/1.py", "b/2.py")
    assert found("b", "a/1.py", "./a", "b/2.py") == found("a", "b") == ["a/1.py", "b/2.py"]


def test_stubs_are_taken_by_name() -> None:
    touch("s.pyi")
    assert found("s.pyi") == ["s.pyi"]


def test_a_folder_named_like_a_file_is_a_folder() -> None:
    touch("m/x.py/inner.py")
    assert found("m") == found("m/x.py") == ["m/x.py/inner.py"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("m/.git", "hidden"),
        ("m/.tox", "hidden"),
        ("m/__pycache__", "compiled Python"),
        ("m/node_modules", "JavaScript packages"),
        ("m/env", "virtual environment"),
        ("m/conda", "conda environment"),
    ],
)
def test_folders_that_hold_no_work_of_the_user_are_skipped_with_a_reason(name: str, reason: str) -> None:
    touch("m/ours.py", "m/env/pyvenv.cfg", "m/conda/conda-meta/history", f"{name}/theirs.py")
    discovery = discover([Path("m")])
    assert discovery.files == (Path("m/ours.py"),)
    assert {skipped.path.as_posix(): skipped.reason for skipped in discovery.skipped}[name] == reason


def test_a_skipped_kind_of_folder_is_searched_when_given() -> None:
    touch(".venv/pyvenv.cfg", ".venv/lib/plugin/model.py")
    assert found(".venv") == found(".venv/lib/plugin") == [".venv/lib/plugin/model.py"]


def test_an_editors_lock_file_is_not_a_broken_link() -> None:
    Path(".#model.py").symlink_to("someone@somewhere.42")
    discovery = discover([Path()])
    assert (discovery.files, discovery.errors) == ((), ())
    assert [skipped.reason for skipped in discovery.skipped] == ["hidden"]


class TestLinks:
    def test_a_file_and_a_link_to_it_are_one_file(self) -> None:
        touch("m/real.py")
        Path("m/alias.py").symlink_to("real.py")
        assert found("m") == found("m/alias.py", "m/real.py") == ["m/real.py"]

    def test_a_link_to_a_file_elsewhere_is_read_under_its_own_name(self) -> None:
        touch("elsewhere/real.py", "m/x")
        Path("m/link.py").symlink_to("../elsewhere/real.py")
        discovery = discover([Path("m")])
        assert discovery.files == (Path("m/link.py"),)
        assert Path("elsewhere/real.py").resolve().parent not in discovery.roots

    def test_a_link_to_a_folder_is_not_followed(self) -> None:
        touch("elsewhere/real.py", "m/x")
        Path("m/link").symlink_to("../elsewhere")
        Path("m/up").symlink_to("..")
        discovery = discover([Path("m")])
        assert discovery.files == ()
        assert {skipped.reason for skipped in discovery.skipped} == {"symbolic link to a folder"}

    def test_a_given_link_to_a_folder_is_followed(self) -> None:
        touch("elsewhere/real.py")
        Path("link").symlink_to("elsewhere")
        discovery = discover([Path("link")])
        assert discovery.files == (Path("link/real.py"),)
        assert discovery.roots == (Path("elsewhere").resolve(),)

    def test_a_given_link_to_a_file_is_not_its_own_target(self) -> None:
        touch("elsewhere/real.py")
        Path("link.py").symlink_to("elsewhere/real.py")
        discovery = discover([Path("link.py")])
        assert discovery.files == (Path("link.py"),)
        assert discovery.roots == (Path.cwd() / "link.py",)

    def test_links_that_lead_nowhere_are_left_to_the_reader(self) -> None:
        Path("gone.py").symlink_to("nowhere.py")
        Path("loop.py").symlink_to("loop.py")
        assert found(".") == ["gone.py", "loop.py"]


class TestErrors:
    @staticmethod
    def lines(discovery: Discovery) -> list[str]:
        return [str(error) for error in discovery.errors]

    def test_a_missing_path(self) -> None:
        touch("a.py")
        discovery = discover([Path("gone"), Path("a.py"), Path("gone")])
        assert self.lines(discovery) == ["gone: no such file or folder; check the path"]
        assert discovery.files == (Path("a.py"),)

    def test_a_given_file_that_is_not_python(self) -> None:
        touch("model.txt")
        assert self.lines(discover([Path("model.txt")])) == [
            "model.txt: is not a Python file; give .py, .pyi or .ipynb files, or folders that hold some"
        ]

    def test_a_folder_that_cannot_be_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        touch("m/a.py", "m/shut/b.py")
        listing = Path.iterdir

        def refuse(path: Path) -> object:
            if path.name == "shut":
                raise PermissionError(13, "Permission denied")
            return listing(path)

        monkeypatch.setattr(Path, "iterdir", refuse)
        discovery = discover([Path("m")])
        assert self.lines(discovery) == ["m/shut: cannot be listed: permission denied; check its permissions"]
        assert discovery.files == (Path("m/a.py"),)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root enters every folder")
    def test_a_folder_that_may_not_be_entered(self) -> None:
        touch("m/shut/b.py")
        Path("m/shut").chmod(0)
        try:
            assert self.lines(discover([Path("m")])) == [
                "m/shut: cannot be listed: permission denied; check its permissions"
            ]
        finally:
            Path("m/shut").chmod(0o700)
