"""One vLLM for all tests of a process: it takes most of a minute to import."""

from __future__ import annotations

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
