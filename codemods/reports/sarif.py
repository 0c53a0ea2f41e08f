"""The findings as SARIF 2.1.0, which code hosts show beside the lines they speak of."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from codemods.findings import FileReport, Finding, Report
from codemods.reports.paths import absolute, relative
from codemods.rule import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(report: Report) -> str:
    from codemods.rules import RULES

    return json.dumps(log(report, RULES), indent=2, ensure_ascii=False) + "\n"


def log(report: Report, rules: Sequence[Rule]) -> dict[str, Any]:
    """The SARIF log as a dictionary: findings are results, failed files are notifications of the invocation."""
    described = [_rule(rule) for rule in rules]
    known = {rule.code for rule in rules}
    # The checks of a run itself have codes too, but no rule to describe them.
    others = sorted({finding.code for file in report.files for finding in file.findings} - known)
    described += [{"id": code} for code in others]
    index = {rule["id"]: position for position, rule in enumerate(described)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "vitport", "semanticVersion": report.version, "rules": described}},
                "columnKind": "unicodeCodePoints",
                "invocations": [_invocation(report)],
                "results": [_result(file, finding, index) for file in report.files for finding in file.findings],
                "properties": {"target": report.target},
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": f"{rule.why} Follows {rule.follows}."},
        "properties": {"safety": rule.safety},
    }


def _invocation(report: Report) -> dict[str, Any]:
    failed = [file for file in report.files if file.error is not None]
    return {
        "executionSuccessful": not failed,
        "exitCode": report.exit_code,
        "toolExecutionNotifications": [
            {
                "level": "error",
                "message": {"text": file.error},
                "locations": [{"physicalLocation": {"artifactLocation": _artifact(file.path)}}],
            }
            for file in failed
        ],
    }


def _result(file: FileReport, finding: Finding, index: dict[str, int]) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": _artifact(file.path)}
    where = ""
    if finding.cell is None:
        place["region"] = {"startLine": finding.line, "startColumn": finding.column}
    else:  # a line of a cell is no line of the file
        where = f"cell {finding.cell}, line {finding.line}: "
    return {
        "ruleId": finding.code,
        "ruleIndex": index[finding.code],
        "level": finding.severity.value,
        "message": {"text": f"{where}{finding.message}\nTo do: {finding.remedy}"},
        "locations": [{"physicalLocation": place}],
    }


def _artifact(path: str) -> dict[str, str]:
    """Relative to the folder the command was run in, which code hosts take for the repository's root; else absolute."""
    inside = relative(path)
    if inside is None:
        return {"uri": absolute(path).as_uri()}
    return {"uri": quote(os.fsencode(inside)), "uriBaseId": "%SRCROOT%"}
