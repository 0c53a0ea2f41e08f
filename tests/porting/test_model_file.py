"""A ported file is imported the way it will be imported when it serves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from porting import host
from porting.job import Job
from porting.levels import load as level
from porting.model_file import ModelFileError, load, load_alone
from porting.result import Status

pytestmark = pytest.mark.vllm
host.prepare_process()

GONE = "from vllm.attention.layer import MultiHeadAttention\n"


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A plugin whose `__init__.py` leaves a trace, and names a thing that a module of it wants."""
    folder = tmp_path / "pear_vl"
    (folder / "models").mkdir(parents=True)
    (folder / "__init__.py").write_text("RAN = True\n")
    (folder / "models" / "__init__.py").write_text("")
    (folder / "sizes.py").write_text("PATCH = 14\n")
    (folder / "models" / "tower.py").write_text("from ..sizes import PATCH\nimport pear_vl\nSEEN = pear_vl.RAN\n")
    yield folder
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "pear_vl"]:
        del sys.modules[name]


def test_a_member_is_imported_by_its_full_name_and_its_packages_run(package: Path) -> None:
    module = load(package / "models" / "tower.py")
    assert (module.__name__, module.PATCH, module.SEEN) == ("pear_vl.models.tower", 14, True)
    assert sys.modules["pear_vl.models.tower"] is module


def test_two_packages_of_one_name_are_not_taken_for_each_other(package: Path, tmp_path: Path) -> None:
    load(package / "models" / "tower.py")
    other = tmp_path / "elsewhere" / "pear_vl"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    (other / "sizes.py").write_text("PATCH = 16\n")
    with pytest.raises(ModelFileError, match=r"elsewhere/pear_vl/sizes.py: Python finds pear_vl.sizes at .* instead"):
        load(other / "sizes.py")


def test_a_file_in_no_package_takes_its_neighbours_and_else_the_installed_models(tmp_path: Path) -> None:
    (tmp_path / "pear_attention.py").write_text("from vllm.model_executor.layers.attention import MMEncoderAttention\n")
    (tmp_path / "pear.py").write_text(
        "from .pear_attention import MMEncoderAttention\nfrom .utils import maybe_prefix\n"
        "from ..layers.activation import SiluAndMul\n"
    )
    module = load(tmp_path / "pear.py")
    assert module.maybe_prefix.__module__ == "vllm.model_executor.models.utils"
    assert module.SiluAndMul.__module__ == "vllm.model_executor.layers.activation"
    assert Path(sys.modules[f"{module.__package__}.pear_attention"].__file__ or "") == tmp_path / "pear_attention.py"


def test_a_missing_name_is_told_with_file_line_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "pear.py").write_text(f"import torch\n\n{GONE}")
    with pytest.raises(ModelFileError) as told:
        load(tmp_path / "pear.py")
    assert (told.value.path, told.value.line) == (tmp_path / "pear.py", 3)
    assert told.value.missing == "vllm.attention"
    assert "port the file with `python -m codemods.migrate`" in str(told.value)
    assert "\n" not in str(told.value)


def test_the_fault_of_a_neighbour_is_told_of_the_neighbour(package: Path) -> None:
    (package / "sizes.py").write_text("PATCH = 14\nfrom vllm.config import NoSuchConfig\n")
    with pytest.raises(ModelFileError) as told:
        load(package / "models" / "tower.py")
    assert (told.value.path, told.value.line) == (package / "sizes.py", 2)
    assert told.value.missing == "vllm.config.NoSuchConfig"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [("x = (\n", 1, "SyntaxError: '\\(' was never closed"), ("\n1 / 0\n", 2, "ZeroDivisionError: division by zero")],
)
def test_a_file_that_cannot_run_is_told_with_its_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    (tmp_path / "pear.py").write_text(text)
    with pytest.raises(ModelFileError, match=what) as told:
        load(tmp_path / "pear.py")
    assert told.value.line == line


def test_the_level_says_how_it_was_imported(package: Path) -> None:
    (package / "sizes.py").write_text("import vllm\n")
    (result,) = level.run(Job(package / "sizes.py", "load"))
    assert (result.status, result.summary, result.notes) == (Status.PASSED, "imported as pear_vl.sizes", ())


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("import json\n", Status.NOT_RUN),
        ("def late():\n    from vllm import ModelRegistry\n", Status.PASSED),
        ("from .utils import maybe_prefix\n", Status.PASSED),  # of vLLM's own folder of models
        ("from torch import nn\nclass Tower(nn.Module):\n    pass\n", Status.PASSED),
    ],
)
def test_an_import_of_what_is_no_model_proves_nothing(tmp_path: Path, text: str, status: Status) -> None:
    (tmp_path / "pear.py").write_text(text)
    (result,) = level.run(Job(tmp_path / "pear.py", "load"))
    assert result.status is status
    assert ("holds nothing to prove" in result.summary) is (status is Status.NOT_RUN)


def test_the_level_fails_with_the_missing_name(tmp_path: Path) -> None:
    (tmp_path / "pear.py").write_text(GONE)
    (result,) = level.run(Job(tmp_path / "pear.py", "load"))
    assert result.status is Status.FAILED
    assert result.numbers == {"file": str(tmp_path / "pear.py"), "line": 1, "missing": "vllm.attention"}


def test_the_level_notes_what_only_the_package_brings(package: Path) -> None:
    (package / "__init__.py").write_text("import sys\nsys.modules['pear_extra'] = sys\n")
    (package / "sizes.py").write_text("import sys\nimport vllm\nimport pear_extra\ndel sys.modules['pear_extra']\n")
    (result,) = level.run(Job(package / "sizes.py", "load"))
    assert result.status is Status.PASSED
    (note,) = result.notes
    assert note.startswith(f"without its package: {package / 'sizes.py'}:3: No module named 'pear_extra'")


def test_a_file_alone_runs_no_package(package: Path) -> None:
    (package / "__init__.py").write_text("raise RuntimeError\n")
    assert load_alone(package / "sizes.py").PATCH == 14
