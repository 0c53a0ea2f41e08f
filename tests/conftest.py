"""Fixtures that many tests share. A test that asks for real vLLM gets the marker that says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import wheels

MARKER_OF_FIXTURE = {"model_files": "corpus", "vllm_python": "vllm"}


@pytest.hookimpl(tryfirst=True)  # before pytest picks tests by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, marker in MARKER_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)


@pytest.fixture(scope="session")
def model_files() -> Callable[[str], Path]:
    """`model_files("0.12.0")`: the `vllm/` folder of that release, Python files only."""
    return wheels.model_files


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The Python of an environment with a real vLLM 0.32; run it with `wheels.VLLM_ENVIRONMENT` set."""
    return wheels.vllm_python()
