"""The small models, and the page over them, once for all tests of a process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from demo_app.environment import prepare_process

prepare_process()


@pytest.fixture(scope="session")
def embedded() -> tuple[object, object]:
    """The engines of both sides, loaded."""
    from demo_app.engines.embedded_chat import EmbeddedChat
    from demo_app.engines.embedded_drawing import EmbeddedDrawing

    engines = EmbeddedChat(), EmbeddedDrawing()
    for engine in engines:
        while (health := asyncio.run(engine.health())).state == "starting":
            time.sleep(0.1)
        assert health.state == "ready", health.problem
    return engines


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
