"""Which files are models: their structure says so, and nothing is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from porting.discovery import find_models

ROOT = Path(__file__).parents[2]

ATTENTION = """\
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = MMEncoderAttention(2, 80)
"""

BLOCKS = """

class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = Attention()


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
"""

WHOLE = """\
from torch import nn
from .tower import Tower


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.visual = Tower()
"""

SPLIT = {"attention.py": ATTENTION, "tower.py": "from torch import nn\nfrom .attention import Attention\n" + BLOCKS}


@pytest.fixture
def models(tmp_path: Path):
    """The names of the models in a folder of these files."""

    def find(files: dict[str, str], given: str = ".") -> list[str]:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return [model.name for model in find_models([tmp_path / given], None, "0.32.0").models]

    return find


def test_a_tower_is_a_model_and_what_has_none_is_not(models) -> None:
    assert models({"tower.py": ATTENTION + BLOCKS, "text.py": "import vllm\n", "empty.py": ""}) == ["tower"]


def test_a_part_of_a_tower_in_another_file_is_no_model_of_its_own(models) -> None:
    assert models(SPLIT) == ["tower"]


def test_what_holds_a_tower_is_a_model_as_well(models) -> None:
    assert models({**SPLIT, "__init__.py": "", "model.py": WHOLE}) == ["model", "tower"]


def test_attention_that_nothing_holds_is_somebodys(models) -> None:
    assert models({"attention.py": ATTENTION}) == ["attention"]


def test_the_op_may_have_another_name_and_come_from_elsewhere(models) -> None:
    renamed = ATTENTION.replace("import MMEncoderAttention", "import MMEncoderAttention as Op").replace(
        "MMEncoderAttention(2", "Op(2"
    )
    assert models({"tower.py": renamed + BLOCKS}) == ["tower"]


def test_an_old_tower_that_chooses_its_kernel_by_hand_is_a_model() -> None:
    found = find_models([ROOT / "examples" / "orchard_vl_plugin"], None, "0.32.0")
    assert [model.name for model in found.models] == ["model", "vision"]
    assert [path.name for path in found.others] == ["__init__.py", "attention.py", "layout.py"]


def test_a_file_given_by_name_is_taken_at_its_word(models) -> None:
    assert models({"text.py": "x = 1\n"}, given="text.py") == ["text"]


def test_a_file_that_cannot_be_parsed_is_not_passed_over(models) -> None:
    assert models({"broken.py": "import vllm\ndef tower(:\n"}) == ["broken"]


def test_a_file_that_cannot_be_parsed_and_is_given_by_name_is_no_good(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import vllm\ndef tower(:\n")
    found = find_models([broken], None, "0.32.0")
    (error,) = found.errors
    assert (found.models, error.startswith(f"{broken}:2: cannot be parsed")) == ((), True)


def test_two_files_of_one_name_are_told_apart(models) -> None:
    assert models({"a/vision.py": ATTENTION, "b/vision.py": ATTENTION}) == ["a/vision", "b/vision"]


def test_an_original_lies_at_the_same_place(tmp_path: Path) -> None:
    for folder, names in {"new": ("a/v.py", "b/v.py"), "old": ("a/v.py", "c/v.py")}.items():
        for name in names:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True)
            path.write_text(ATTENTION)
    found = find_models([tmp_path / "new"], tmp_path / "old", "0.32.0")
    assert [model.before for model in found.models] == [tmp_path / "old" / "a" / "v.py", None]


def test_an_original_of_one_file_is_one_file(tmp_path: Path) -> None:
    new, old = tmp_path / "new.py", tmp_path / "any_name.py"
    new.write_text(ATTENTION)
    old.write_text(ATTENTION)
    assert find_models([new], old, "0.32.0").models[0].before == old
