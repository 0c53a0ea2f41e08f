"""SARIF 2.1.0: the parts of the standard's schema that this log uses, and nothing outside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from codemods.findings import FileReport, Report, Severity
from codemods.reports import sarif
from tests.reports.sample import FAILED, REPORT, RULES, finding


def of(**properties: Any) -> dict[str, Any]:
    """An object of exactly these properties; a name that ends in "_" may be absent."""
    return {
        "type": "object",
        "properties": {name.rstrip("_"): schema for name, schema in properties.items()},
        "required": [name for name in properties if not name.endswith("_")],
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
POSITIVE = {"type": "integer", "minimum": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = of(text=TEXT)
ARTIFACT = of(uri={**TEXT, "pattern": r"^[A-Za-z0-9/:._~%-]+$"}, uriBaseId_={"const": "%SRCROOT%"})
LOCATIONS = {
    "type": "array",
    "minItems": 1,
    "items": of(physicalLocation=of(artifactLocation=ARTIFACT, region_=of(startLine=POSITIVE, startColumn=POSITIVE))),
}
RULE = of(id=TEXT, name_=TEXT, shortDescription_=MESSAGE, fullDescription_=MESSAGE, properties_={"type": "object"})
NOTIFICATION = of(level=LEVEL, message=MESSAGE, locations=LOCATIONS)
RESULT = of(ruleId=TEXT, ruleIndex={"type": "integer", "minimum": 0}, level=LEVEL, message=MESSAGE, locations=LOCATIONS)
RUN = of(
    tool=of(driver=of(name=TEXT, semanticVersion=TEXT, rules={"type": "array", "items": RULE, "uniqueItems": True})),
    columnKind={"const": "unicodeCodePoints"},
    invocations={
        "type": "array",
        "items": of(
            executionSuccessful={"type": "boolean"},
            exitCode={"type": "integer"},
            toolExecutionNotifications={"type": "array", "items": NOTIFICATION},
        ),
    },
    results={"type": "array", "items": RESULT},
    properties={"type": "object"},
)
SCHEMA = of(
    **{"$schema": {"const": sarif.SCHEMA}, "version": {"const": "2.1.0"}},
    runs={"type": "array", "items": RUN, "minItems": 1, "maxItems": 1},
)


def run(report: Report) -> dict[str, Any]:
    log = sarif.log(report, RULES)
    Draft202012Validator(SCHEMA).validate(log)
    [run] = log["runs"]
    assert isinstance(run, dict)
    return run


def test_each_finding_is_a_result_at_its_place() -> None:
    results = run(REPORT)["results"]
    assert len(results) == sum(len(file.findings) for file in REPORT.files) == 4
    assert results[1] == {
        "ruleId": "VA2",
        "ruleIndex": 1,
        "level": "error",
        "message": {"text": "cross-attention in __init__ is not moved\nTo do: write it by hand"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "models/part.py", "uriBaseId": "%SRCROOT%"},
                    "region": {"startLine": 20, "startColumn": 9},
                }
            }
        ],
    }


def test_every_result_points_to_the_rule_it_names() -> None:
    whole = run(REPORT)
    rules = whole["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["VA1", "VA2", "SELF"]  # the last has no rule, only findings
    assert {rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in whole["results"]} == {True}


def test_severities_are_levels_of_the_same_name() -> None:
    file = FileReport("a.py", findings=tuple(finding(1, severity) for severity in Severity))
    assert [result["level"] for result in run(Report("0.32.0", (file,)))["results"]] == ["error", "warning", "note"]


def test_a_failed_file_makes_the_execution_unsuccessful() -> None:
    [invocation] = run(REPORT)["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)
    [notification] = invocation["toolExecutionNotifications"]
    assert notification["message"]["text"] == FAILED.error


def test_a_clean_run_is_successful_and_empty() -> None:
    clean = run(Report("0.32.0", (FileReport("a.py"),)))
    assert clean["results"] == []
    assert clean["invocations"] == [{"executionSuccessful": True, "exitCode": 0, "toolExecutionNotifications": []}]


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("models/a b.py", "models/a%20b.py"),
        ("modèle#1.py", "mod%C3%A8le%231.py"),
        ("./x/../a.py", "a.py"),
    ],
)
def test_paths_are_percent_encoded_and_relative(path: str, uri: str) -> None:
    [result] = run(Report("0.32.0", (FileReport(path, findings=(finding(1, Severity.NOTE),)),)))["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": uri, "uriBaseId": "%SRCROOT%"}


def test_a_path_elsewhere_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    [result] = run(Report("0.32.0", (FileReport("../a.py", findings=(finding(1, Severity.NOTE),)),)))["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": (tmp_path / "a.py").as_uri()}


def test_render_is_the_log_with_the_rules_of_this_version() -> None:
    from codemods.rules import RULES as REAL

    assert json.loads(sarif.render(REPORT)) == sarif.log(REPORT, REAL)
