"""A bar for a person who waits, and for nobody else."""

from __future__ import annotations

import io
import sys

import pytest

from codemods.reports import progress
from codemods.reports.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0)


def shown(stream: io.StringIO) -> str:
    bar = Progress(stream)
    for done in range(1, 4):
        bar(done, 3)
    bar.close()
    return stream.getvalue()


def test_a_pipe_gets_nothing() -> None:
    assert shown(io.StringIO()) == ""


def test_a_short_run_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 60)
    assert shown(Terminal()) == ""


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = shown(Terminal())
    assert "migrating" in text
    assert "33%" in text
    assert "100%" in text


def test_without_rich_a_counter_counts_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    counts = "".join(f"\rmigrating {done}/3 files" for done in (1, 2, 3))
    assert shown(Terminal()) == counts + "\r" + " " * len("migrating 3/3 files") + "\r"
