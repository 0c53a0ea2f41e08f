"""The report for programs: the keys docs/report.md promises, and counts that add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from codemods.findings import FileReport, Report
from codemods.reports import json as json_report
from tests.reports.sample import FILES, REPORT

DOCUMENT = Path(__file__).parents[2] / "docs" / "report.md"


def written(report: Report) -> dict[str, Any]:
    text = json_report.render(report)
    assert text.endswith("}\n")
    read = json.loads(text)
    assert isinstance(read, dict)
    return read


def test_one_file_with_rewrites_and_findings() -> None:
    [part] = [file for file in written(REPORT)["files"] if file["path"] == "models/part.py"]
    assert part == {
        "path": "models/part.py",
        "source": "0.11.2",
        "status": "needs-attention",
        "live": None,
        "rewrites": [
            {
                "code": "VA1",
                "line": 7,
                "message": "OldAttention becomes NewAttention",
                "safety": "safe",
                "follows": "vLLM 0.13 (#1)",
            }
        ],
        "findings": [
            {
                "code": code,
                "severity": severity,
                "line": line,
                "column": 9,
                "message": "cross-attention in __init__ is not moved",
                "remedy": "write it by hand",
            }
            for code, severity, line in (("VA2", "error", 20), ("SELF", "warning", 30))
        ],
    }


def test_the_summary_adds_up() -> None:
    read = written(REPORT)
    summary = read["summary"]
    statuses = ("rewritten", "unchanged", "needs-attention", "failed")
    assert summary["files"] == len(read["files"]) == sum(summary[status] for status in statuses) == len(FILES)
    for status in statuses:
        assert summary[status] == sum(file["status"] == status for file in read["files"])
    assert summary["findings"] == sum(len(file["findings"]) for file in read["files"]) == 4
    assert summary["rewrites"] == sum(len(file["rewrites"]) for file in read["files"]) == 3
    assert summary["sites"] == {"total": 7, "rewritten": 3, "refused": 3, "irrelevant": 1}
    assert summary["exit_code"] == 2


def test_a_failed_file_says_why() -> None:
    [failed] = [file for file in written(REPORT)["files"] if file["status"] == "failed"]
    assert failed["error"] == "models/broken.py:4: is not valid Python; correct it and run again"


def test_names_stay_readable() -> None:
    assert '"models/modèle.py"' in json_report.render(Report("0.32.0", (FileReport("models/modèle.py"),)))


def test_every_key_is_documented() -> None:
    def keys(value: object) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*map(keys, value.values()))
        return set().union(*map(keys, value)) if isinstance(value, list) else set()

    text = DOCUMENT.read_text(encoding="utf-8")
    assert {key for key in keys(written(REPORT)) if f"`{key}`" not in text} == set()
