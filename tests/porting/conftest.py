"""One vLLM for all tests of a process: it takes most of a minute to import."""

from __future__ import annotations

import pytest

from porting import host


@pytest.fixture(scope="session")
def groups() -> None:
    """Real vLLM with its groups of one process."""
    host.prepare_process()
    host.start_groups()
