"""The report for programs; docs/report.md describes each field."""

from __future__ import annotations

import json

from codemods.findings import Report


def render(report: Report) -> str:
    return json.dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n"
