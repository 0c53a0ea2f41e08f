"""`--report FILE`: the suffix chooses the form, and the file is replaced whole."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from codemods.findings import FileReport, Report
from codemods.reports import SUFFIXES, markdown, sarif, write_report
from codemods.reports import json as json_report
from tests.reports.sample import REPORT


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".json", json_report.render(REPORT)),
        (".sarif", sarif.render(REPORT)),
        (".md", markdown.render(REPORT)),
    ],
)
def test_the_suffix_chooses_the_form(tmp_path: Path, suffix: str, text: str) -> None:
    path = tmp_path / f"report{suffix}"
    write_report(REPORT, path)
    assert path.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [path]


def test_an_earlier_report_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("earlier and longer than nothing")
    path.chmod(0o600)
    write_report(REPORT, path)
    assert json.loads(path.read_text())["target"] == "0.32.0"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "latest.json").symlink_to("real.json")
    write_report(REPORT, tmp_path / "latest.json")
    assert (tmp_path / "latest.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["target"] == "0.32.0"


def test_a_full_disk_leaves_the_earlier_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.md"
    path.write_text("earlier")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(REPORT, path)
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_name_that_is_no_text_does_not_end_the_report(tmp_path: Path, suffix: str) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    write_report(Report("0.32.0", (FileReport(name, error=f"{name}: is wrong"),)), tmp_path / f"r{suffix}")
    assert "caf\\udce9.py" in (tmp_path / f"r{suffix}").read_text(encoding="utf-8")
    if suffix == ".json":
        assert json.loads((tmp_path / "r.json").read_text())["files"][0]["path"] == name
