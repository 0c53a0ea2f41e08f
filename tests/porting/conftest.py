"""One vLLM for all tests of a process: it takes most of a minute to import."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch

from porting import host


@pytest.fixture(scope="session")
def groups() -> None:
    """Real vLLM with its groups of one process."""
    host.prepare_process()
    host.start_groups()


@pytest.fixture
def no_groups() -> Iterator[None]:
    """Without the groups of this process, which forks could not use; other tests have them again afterwards."""
    had = torch.distributed.is_initialized()
    if had:
        host.stop_groups()
    yield
    if had:
        host.start_groups()


@pytest.fixture(autouse=True)
def nothing_stays_imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package that a test writes and imports is gone afterwards: the next test may write another of its name."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    written = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(written):
            del sys.modules[name]
