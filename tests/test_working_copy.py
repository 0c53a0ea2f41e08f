"""What `make migrate` copies before it ports, what it refuses to copy, and what it keeps of earlier copies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from codemods import working_copy
from codemods.run import Options, migrate
from codemods.working_copy import CopyError, WorkingCopy


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout to stand in, with plugins beside it."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    monkeypatch.chdir(checkout)
    return tmp_path


COPIES = Path("build/migrated")
EXAMPLE = Path(__file__).parents[1] / "examples" / "orchard_vl_plugin"


def write(path: Path, text: str = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def package(folder: Path, *modules: str) -> Path:
    for name in ("__init__", *modules):
        write(folder / f"{name}.py")
    return folder


def made(models: Path) -> tuple[WorkingCopy, str]:
    """A copy as a port leaves it: its report comes last."""
    copy = WorkingCopy.of(str(models), COPIES)
    said = copy.make()
    write(copy.report, "report\n")
    return copy, said


def inside(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class TestWhatIsCopied:
    def test_a_folder_is(self, work: Path) -> None:
        write(work / "models" / "sub" / "a.py")
        copy, _ = made(work / "models")
        assert copy.place == copy.root == COPIES / "models"
        assert inside(copy.root) == ["sub/a.py"]

    def test_of_a_file_in_a_package_the_whole_package_is(self, work: Path) -> None:
        package(package(work / "plugin", "config") / "vision", "attention", "tower")
        copy, _ = made(work / "plugin" / "vision" / "attention.py")
        assert copy.place == COPIES / "plugin" / "vision" / "attention.py"
        assert inside(copy.root) == [
            *("__init__.py", "config.py"),
            *("vision/__init__.py", "vision/attention.py", "vision/tower.py"),
        ]

    def test_so_the_port_of_one_file_sees_its_callers(self, work: Path) -> None:
        attention = EXAMPLE / "orchard_vl" / "attention.py"
        copy, _ = made(attention)
        told = []
        for path in (attention, copy.place):
            (report,) = migrate([path], Options("0.32.0", write=False)).files
            told.append((report.rewrites, [f for f in report.findings if f.code != "VA662"]))
        assert told[0] == told[1]
        assert any("vision.py" in finding.message for finding in told[1][1])

    def test_of_a_folder_in_a_package_too(self, work: Path) -> None:
        package(package(work / "plugin", "config") / "vision", "tower")
        copy, _ = made(work / "plugin" / "vision")
        assert copy.place == COPIES / "plugin" / "vision"
        assert (COPIES / "plugin" / "config.py").exists()

    def test_of_a_file_of_no_package_the_modules_beside_it_are(self, work: Path) -> None:
        for name in ("a.py", "b.py", "weights.bin", "sub/c.py"):
            write(work / "loose" / name)
        copy, _ = made(work / "loose" / "a.py")
        assert copy.place == COPIES / "loose" / "a.py"
        assert inside(copy.root) == ["a.py", "b.py"]

    def test_vllms_own_models_keep_their_place_without_the_rest_of_it(self, work: Path) -> None:
        package(package(work / "vllm", "envs") / "model_executor", "custom_op")
        package(work / "vllm" / "model_executor" / "models", "a")
        copy, _ = made(work / "vllm" / "model_executor" / "models" / "a.py")
        assert copy.place == COPIES / "vllm/model_executor/models/a.py"
        assert inside(copy.root) == ["model_executor/models/__init__.py", "model_executor/models/a.py"]

    def test_what_is_read_only_can_be_written_in_the_copy(self, work: Path) -> None:
        path = write(work / "models" / "sub" / "a.py")
        path.chmod(0o444)
        path.parent.chmod(0o555)
        copy, _ = made(work / "models")
        path.parent.chmod(0o755)
        assert (copy.root / "sub" / "a.py").stat().st_mode & 0o200
        assert (copy.root / "sub").stat().st_mode & 0o200
        assert not path.stat().st_mode & 0o222

    def test_what_no_port_needs_is_not(self, work: Path) -> None:
        models = write(work / "models" / "a.py").parent
        write(models / ".git" / "config")
        write(models / "__pycache__" / "a.pyc")
        write(models / "env" / "pyvenv.cfg")
        (models / "gone.py").symlink_to("nowhere.py")
        (models / "round").symlink_to(models)
        os.mkfifo(models / "pipe.py")
        assert inside(made(models)[0].root) == ["a.py"]


class TestWhatIsRefused:
    @pytest.fixture(autouse=True)
    def _nothing_may_be_copied(self, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise AssertionError("copied or removed something")

        for name in ("copytree", "copy2", "rmtree"):
            monkeypatch.setattr(shutil, name, fail)

    @pytest.mark.parametrize(
        ("models", "says"),
        [
            ("/", "MODELS=/: / holds build/migrated; give the folder of the models alone"),
            ("//", "MODELS=//: / holds build/migrated; give the folder of the models alone"),
            ("../checkout/..", "holds build/migrated; give the folder of the models alone"),
            (".", "holds build/migrated; give the folder of the models alone"),
            ("build", "holds build/migrated; give the folder of the models alone"),
            ("build/migrated", "holds build/migrated; give the folder of the models alone"),
            ("build/migrated/models", "is itself a ported copy; give the original"),
            ("", "MODELS= does not exist; give a file or a folder"),
            ("  ", "MODELS=   does not exist; give a file or a folder"),
            ("nowhere", "MODELS=nowhere does not exist; give a file or a folder"),
            ("/dev/null", "MODELS=/dev/null is neither a file nor a folder; give one"),
        ],
    )
    def test_in_one_line(self, models: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
        kept = write(COPIES / "models" / "a.py")
        assert working_copy.main([models, str(COPIES)]) == 2
        [line] = capsys.readouterr().out.splitlines()
        assert says in line
        assert kept.exists()

    def test_a_folder_that_holds_the_checkout_alone(self, work: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        with pytest.raises(CopyError, match="holds this checkout; give the folder of the models alone"):
            WorkingCopy.of(str(work), tmp_path_factory.mktemp("elsewhere"))

    def test_a_package_that_holds_the_checkout(self, work: Path) -> None:
        package(work, "a")
        with pytest.raises(CopyError, match="holds build/migrated"):
            WorkingCopy.of(str(work / "a.py"), COPIES)


class TestAnEarlierCopy:
    @pytest.fixture
    def models(self, work: Path) -> Path:
        return write(work / "models" / "a.py").parent

    def test_that_nobody_touched_gives_way(self, models: Path) -> None:
        copy, _ = made(models)
        write(copy.root / "__pycache__" / "a.pyc")
        write(models / "b.py")
        _, said = made(models)
        assert said == ""
        assert inside(copy.root) == ["a.py", "b.py"]
        assert sorted(path.name for path in COPIES.iterdir()) == ["models", "models.origin", "models.report.md"]

    def test_that_was_worked_on_is_kept_each_time(self, models: Path) -> None:
        for number in (1, 2):
            copy, _ = made(models)
            write(copy.root / "a.py", f"by hand {number}\n")
            os.utime(copy.report, ns=(0, 0))  # clocks of files are coarse
            _, said = made(models)
            told = "The earlier copy was changed by hand, or is of other models: it is kept as build/migrated/models"
            assert said == f"{told}.{number}."
            assert (COPIES / f"models.{number}" / "a.py").read_text() == f"by hand {number}\n"
            assert (COPIES / f"models.{number}.report.md").exists()
            assert (copy.root / "a.py").read_text() == "x = 1\n"

    def test_of_another_folder_of_that_name_is_kept(self, models: Path, work: Path) -> None:
        made(models)
        _, said = made(write(work / "other" / "models" / "b.py").parent)
        assert said.endswith("kept as build/migrated/models.1.")
        assert inside(COPIES / "models.1") == ["a.py"]
        assert inside(COPIES / "models") == ["b.py"]

    def test_is_left_where_only_its_place_is_asked_for(self, models: Path, capsys: pytest.CaptureFixture[str]) -> None:
        copy, _ = made(models)
        write(copy.root / "a.py", "by hand\n")
        assert working_copy.main(["--where", str(models), str(COPIES)]) == 0
        assert capsys.readouterr().out == "build/migrated/models\nbuild/migrated/models.report.md\n\n"
        assert (copy.root / "a.py").read_text() == "by hand\n"
