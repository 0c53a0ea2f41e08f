"""The small models, and the page over them, once for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo_app import small_models
from demo_app.environment import prepare_process

prepare_process()


@pytest.fixture(scope="session")
def embedded() -> tuple[object, object]:
    """The engines of both sides, loaded."""
    from demo_app.engines.embedded_chat import EmbeddedChat
    from demo_app.engines.embedded_drawing import EmbeddedDrawing

    return EmbeddedChat(), EmbeddedDrawing()


@pytest.fixture(scope="session")
def page(embedded: tuple[object, object]) -> Iterator[str]:
    """The address of the page over the small models."""
    with served(*embedded) as address:
        yield address


@contextmanager
def served(chat: object, drawing: object) -> Iterator[str]:
    """The address of a page over any two engines."""
    from demo_app.page import layout

    built = layout.build(chat, drawing)
    _, address, _ = layout.launch(built, "127.0.0.1", 0, prevent_thread_lock=True)
    try:
        yield address
    finally:
        built.close(verbose=False)


@pytest.fixture(scope="session", autouse=True)
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the small models: those that ship, or untrained ones of the same classes and sizes."""
    with pytest.MonkeyPatch.context() as patch:
        shipped = Path(small_models.__file__).parent / "models"
        if all((shipped / name).is_dir() for name in (small_models.CHAT, small_models.DRAWING)):
            yield shipped
            return
        folder = tmp_path_factory.mktemp("models")
        untrained(folder)
        patch.setenv(small_models.PLACE, str(folder))
        yield folder


def untrained(folder: Path) -> None:
    """Both folders as the training writes them, with weights that know nothing."""
    import torch
    from transformers import Qwen2_5_VLForConditionalGeneration

    from demo_app.training import ship, text_to_image, tokenizer, vae, vl

    torch.manual_seed(0)
    chat = Qwen2_5_VLForConditionalGeneration(vl.config(tokenizer.make()))
    drawing = {"model": text_to_image.make().state_dict(), "scale": torch.tensor([[0.0] * 16, [1.0] * 16])}
    torch.save(chat.state_dict(), folder / "vl-final.pt")
    torch.save(vae.make().state_dict(), folder / "vae-final.pt")
    torch.save(drawing, folder / "text_to_image-final.pt")
    ship.save_vl(folder, folder / small_models.CHAT)
    ship.save_drawing(folder, folder / small_models.CHAT, folder / small_models.DRAWING)
