"""One run in which everything happens, told in every form by the tests beside this file."""

from __future__ import annotations

from codemods.findings import FileReport, Finding, Report, Rewrite, Severity, Sites
from codemods.rule import Example, Rule


def rewrite(line: int, code: str = "VA1", safety: str = "safe") -> Rewrite:
    return Rewrite(line, code, "OldAttention becomes NewAttention", safety, "vLLM 0.13 (#1)")


def finding(line: int, severity: Severity, code: str = "VA2") -> Finding:
    return Finding(line, 9, code, severity, "cross-attention in __init__ is not moved", "write it by hand")


REWRITTEN = FileReport(
    "models/done.py",
    source="0.12.0",
    rewrites=(rewrite(3), rewrite(12, "VA2", "review: the scale")),
    sites=Sites(rewritten=2),
    before="import a\n",
    after="import b\n",
)
PART = FileReport(
    "models/part.py",
    source="0.11.2",
    rewrites=(rewrite(7),),
    findings=(finding(20, Severity.ERROR), finding(30, Severity.WARNING, "SELF")),
    sites=Sites(rewritten=1, refused=2),
    before="x\n",
    after="y\n",
)
REFUSED = FileReport("models/refused.py", findings=(finding(5, Severity.WARNING),), sites=Sites(refused=1))
NOTED = FileReport("models/noted.py", findings=(finding(6, Severity.NOTE),), sites=Sites(irrelevant=1))
UNTOUCHED = FileReport("models/untouched.py")
FAILED = FileReport("models/broken.py", error="models/broken.py:4: is not valid Python; correct it and run again")

FILES = (FAILED, REWRITTEN, NOTED, PART, REFUSED, UNTOUCHED)
REPORT = Report("0.32.0", FILES, version="1.2.3")

RULES = (
    Rule(
        code="VA1",
        name="encoder-attention",
        summary="Replaces OldAttention | NewAttention.",
        why="The old class is gone.",
        follows="vLLM 0.13 (#1)",
        names=frozenset({"OldAttention", "old"}),
        plan=lambda plan: None,
        examples=(Example("import a\n\na.old()\n", "import b\n\nb.new()\n"),),
    ),
    Rule(
        code="VA2",
        name="scale",
        summary="Passes the scale.",
        why="It is no longer implied.",
        follows="vLLM 0.14 (#2)",
        names=frozenset({"scale"}),
        plan=lambda plan: None,
        examples=(Example("a.old(q, mask)\n", "a.old(q, mask)\n", "0.11.1", "0.13", refused=True),),
        review="where it was not the default",
        requires=("VA1",),
    ),
)
