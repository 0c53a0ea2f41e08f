"""The whole model's vectors: the migrated example plugin is right, and each way to get them wrong is seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from codemods import vllm_api
from codemods.run import Options, migrate
from porting import forks
from porting.job import Job
from porting.levels import embeddings
from porting.result import Result, Status
from tests.wheels import model_files

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("groups")]

PLUGIN = Path(__file__).parents[2] / "examples" / "orchard_vl_plugin"
Asked = Callable[..., Result]


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """Ask about the migrated plugin with one piece of text of a file replaced."""
    copy = shutil.copytree(PLUGIN, tmp_path / "plugin")
    migrate([copy], Options(target=vllm_api.resolve("0.32")))

    def ask(file: str = "", old: str = "", new: str = "", before: Path | None = None) -> Result:
        if file:
            path = copy / "orchard_vl" / file
            text = path.read_text(encoding="utf-8")
            assert text.count(old) == 1
            path.write_text(text.replace(old, new), encoding="utf-8")
        job = Job(copy / "orchard_vl" / "vision.py", "embeddings", before=before)
        (result,) = forks.forked(lambda: embeddings.run(job), 300)
        return result

    return ask


def test_the_migrated_plugin_gives_what_it_gave_before(asked: Asked) -> None:
    result = asked(before=PLUGIN / "orchard_vl" / "vision.py")

    assert result.status is Status.PASSED, (result.summary, *result.notes)
    assert result.summary == (
        "OrchardVLForConditionalGeneration: 3 pictures and 2 videos become the right vectors, each as if it were "
        "alone, equal to its original's"
    )
    assert result.numbers["the original: difference"] == result.numbers["the tower's output: difference"] == 0


def test_pictures_that_attend_to_each_other(asked: Asked) -> None:
    one_sequence = "cumulative(torch.cat([layout.frame_lengths for layout in layouts]).sum().view(1))"
    result = asked("vision.py", "cumulative(torch.cat([layout.frame_lengths for layout in layouts]))", one_sequence)

    assert result.status is Status.FAILED
    assert "image 1 of 3 differs by 0." in result.summary
    assert result.summary.endswith("of the largest number from it alone")


def test_vectors_given_to_the_wrong_picture(asked: Asked) -> None:
    swapped = "\n    def embed_multimodal(self, **kwargs):\n        return super().embed_multimodal(**kwargs)[::-1]\n"
    result = asked("model.py", "\n    def __init__(", f"{swapped}\n    def __init__(")

    assert result.status is Status.FAILED
    assert "gives [4, 8, 6] vectors for images" in result.summary
    assert result.summary.endswith("which have [6, 8, 4]")


def test_vectors_lost_on_the_way(asked: Asked) -> None:
    result = asked("vision.py", "[torch.argsort(order)]", "[torch.argsort(order)[1:]]")

    assert result.status is Status.FAILED
    assert "raises RuntimeError" in result.summary


def test_a_tower_that_the_model_does_not_use(asked: Asked) -> None:
    result = asked("model.py", "self.visual = OrchardVisionTower(", "self.__dict__['unused'] = OrchardVisionTower(")

    assert result.status is Status.FAILED
    assert result.summary.endswith("holds none of the file's towers, OrchardVisionTower")


@pytest.mark.corpus
def test_the_file_of_a_tower_alone_is_asked_inside_vllms_own_model() -> None:
    """vLLM 0.32's own tower of Ovis2.5 follows what vLLM changed in it, which is said and not taken for a fault."""
    spec = find_spec("vllm.model_executor.models.siglip2navit")
    assert spec is not None and spec.origin is not None
    original = model_files("0.12.0") / "model_executor" / "models" / "siglip2navit.py"
    job = Job(Path(spec.origin), "embeddings", before=original, before_release="0.12.0")
    (result,) = forks.forked(lambda: embeddings.run(job), 300)

    assert result.status is Status.PASSED, (result.summary, *result.notes)
    assert result.summary.startswith("Ovis2_5: 3 pictures become the right vectors")
    assert result.numbers["the original: difference"] == 0
    assert any("the last layer norm is built, and no longer applied" in note for note in result.notes)


def test_a_file_that_no_whole_model_uses(tmp_path: Path) -> None:
    alone = tmp_path / "alone.py"
    alone.write_text("import torch\n")
    (result,) = embeddings.run(Job(alone, "embeddings"))

    assert result.status is Status.NOT_RUN
    assert result.summary == "no class of alone.py is a whole model that takes pictures"
