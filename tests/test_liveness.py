"""Which files of a plugin its entry points and registries reach; the others are marked, and nothing else is claimed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from codemods import vllm_api
from codemods.findings import Report, Severity
from codemods.run import Options, migrate

Look = Callable[..., Report]

MODEL = "from torch import nn\nfrom vllm.config import VllmConfig\n\n\nclass {name}(nn.Module): ...\n"
ENTRY = '[project.entry-points."vllm.general_plugins"]\norchard = "orchard:register"\n'


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """A plugin `orchard` of these files, among them `live.py` and `dead.py`, which are models. Looks at its package."""

    def run(given: str = "orchard", pyproject: str = ENTRY, **files: str) -> Report:
        package = tmp_path / "orchard"
        models = {name: MODEL.format(name=name.title()) for name in ("live", "dead")}
        for name, text in {"__init__": "", **models, **files}.items():
            path = package / f"{name.replace('__of__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "pyproject.toml").write_text(pyproject)
        return migrate([tmp_path / given], Options(target=vllm_api.resolve("0.32"), write=False))

    return run


def marks(report: Report) -> dict[str, bool | None]:
    """The mark of each model; a package's own file is no model."""
    return {Path(file.path).stem: file.live for file in report.files if not file.path.endswith("__init__.py")}


REACHED = {
    "an import": "from orchard.live import Live\n",
    "a relative import": "from .live import Live\n",
    "an import of the module": "from . import live\n",
    "an import in a function": "def register():\n    import orchard.live\n",
    "a text for vLLM's registry": 'def register(registry):\n    registry.register_model("A", "orchard.live:Live")\n',
    "a text that is put together": 'NAME = "Live"\nMODEL = f"orchard.live:{NAME}"\n',
    "a table of texts": 'MODELS = {"A": "orchard.live:Live"}\n',
    "a table as vLLM's own": 'MODELS = {"A": ("live", "Live")}\n',
    "a module by its name": 'from importlib import import_module\n\nimport_module(".live", __package__)\n',
    "a loop over names": "MODULES = ['orchard.live']\n",
}


class TestFile:
    @pytest.mark.parametrize("text", REACHED.values(), ids=REACHED)
    def test_that_is_reached_is_live_and_the_other_is_not(self, text: str, look: Look) -> None:
        report = look(__init__=text)
        assert marks(report) == {"live": True, "dead": False}
        (noted,) = (file for file in report.files if file.findings)
        assert Path(noted.path).stem == "dead"
        assert [(f.code, f.severity, f.line) for f in noted.findings] == [("VA662", Severity.NOTE, 1)]
        assert report.exit_code == 0

    def test_is_reached_over_other_files(self, look: Look) -> None:
        report = look(__init__="from . import middle\n", middle="from .live import Live\n")
        assert marks(report)["live"] is True

    def test_is_not_reached_by_what_is_not_reached(self, look: Look) -> None:
        report = look(live="from .dead import Dead\n" + MODEL.format(name="Live"))
        assert marks(report) == {"live": False, "dead": False}

    def test_is_reached_in_a_copy_of_its_package_under_another_name(self, look: Look) -> None:
        registers = 'def register(registry):\n    registry.register_model("A", "pear.live:Live")\n'
        assert marks(look(__init__=registers)) == {"live": True, "dead": False}

    def test_is_not_reached_by_a_comment(self, look: Look) -> None:
        report = look(__init__='# register_model("A", "orchard.live:Live")\n')
        assert marks(report)["live"] is False

    def test_that_registers_itself_is_live(self, look: Look) -> None:
        imported = "from vllm.model_executor.custom_op import CustomOp\n\n\n"
        op = imported + "@CustomOp.register_oot()\nclass Live(CustomOp): ...\n"
        assert marks(look(live=op, pyproject=""))["live"] is True

    def test_that_is_run_as_a_script_is_live(self, look: Look) -> None:
        script = MODEL.format(name="Live") + '\n\nif __name__ == "__main__":\n    Live()\n'
        assert marks(look(live=script))["live"] is True

    def test_without_a_class_of_its_own_is_not_spoken_of(self, look: Look) -> None:
        assert marks(look(dead="from vllm.config import VllmConfig\n"))["dead"] is None

    def test_of_tests_is_not_spoken_of(self, look: Look) -> None:
        assert marks(look(test_dead=MODEL.format(name="Dead")))["test_dead"] is None

    def test_given_alone_is_looked_for_from_the_files_beside_it(self, look: Look) -> None:
        assert marks(look("orchard/live.py", __init__="from .live import Live\n")) == {"live": True}
        assert marks(look("orchard/dead.py", __init__="from .live import Live\n")) == {"dead": False}

    def test_may_be_one_of_many_that_are_found_at_run_time(self, look: Look) -> None:
        walk = "import pkgutil\n\nfor module in pkgutil.iter_modules(__path__): ...\n"
        assert marks(look(__init__=walk)) == {"live": True, "dead": True}


class TestPlugin:
    def test_that_registers_nothing_has_no_marks(self, look: Look) -> None:
        report = look(pyproject="[project]\n", __init__="from .live import Live\n")
        assert set(marks(report).values()) == {None}
        assert not any(file.findings for file in report.files)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("setup.cfg", "[options.entry_points]\nvllm.general_plugins =\n    orchard = orchard.live:register\n"),
            ("setup.py", 'setup(entry_points={"vllm.general_plugins": ["orchard = orchard.live:register"]})\n'),
        ],
    )
    def test_may_name_its_entry_points_elsewhere(self, name: str, text: str, look: Look, tmp_path: Path) -> None:
        (tmp_path / name).write_text(text)
        assert marks(look(pyproject=""))["live"] is True
        assert marks(look(pyproject=""))["dead"] is False

    def test_ends_where_its_folder_does(self, look: Look, tmp_path: Path) -> None:
        """A link out of the plugin is not followed, and nothing outside is read or written."""
        outside = tmp_path.parent / f"{tmp_path.name}_outside"
        outside.mkdir()
        (outside / "more.py").write_text("import orchard.dead\n")
        (tmp_path / "orchard").mkdir()
        (tmp_path / "orchard" / "linked").symlink_to(outside)
        (tmp_path / "orchard" / "more.py").symlink_to(outside / "more.py")
        report = look(__init__="from . import more\n")
        assert marks(report)["dead"] is False
        assert (outside / "more.py").read_text() == "import orchard.dead\n"

    def test_with_files_that_cannot_be_parsed_is_searched_all_the_same(self, look: Look, tmp_path: Path) -> None:
        (tmp_path / "broken.py").write_text("def broken(:\n")
        assert marks(look(__init__="from .live import Live\n"))["live"] is True


def test_vllm_itself_is_no_plugin(tmp_path: Path) -> None:
    folder = tmp_path / "vllm" / "model_executor" / "models"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    (folder / "registry.py").write_text('def add(registry):\n    registry.register_model("A", "a:A")\n')
    (folder / "dead.py").write_text(MODEL.format(name="Dead"))
    report = migrate([folder], Options(target=vllm_api.resolve("0.32"), write=False))
    assert set(marks(report).values()) == {None}
