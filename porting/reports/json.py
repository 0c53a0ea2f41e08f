"""The report for programs; docs/check-report.schema.json describes each field."""

from __future__ import annotations

import json
import math
from typing import Any

from porting.report import Report


def render(report: Report) -> str:
    return json.dumps(_finite(report.to_json()), indent=2, ensure_ascii=False, default=str) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no not-a-number and no infinity: they become text."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
