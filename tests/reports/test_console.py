"""What a person reads: the text as a whole, since its layout is what it is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codemods.findings import FileReport, Report
from codemods.reports import console
from tests.reports.sample import FAILED, NOTED, PART, REFUSED, REPORT, REWRITTEN, UNTOUCHED

WHOLE = """\
vitport 1.2.3, target vLLM 0.32.0 (as given)

models/done.py: rewritten, written for vLLM 0.12.0
  line  3  VA1  OldAttention becomes NewAttention
  line 12  VA2  OldAttention becomes NewAttention
           review: the scale

models/noted.py: nothing to rewrite
  models/noted.py:6:9: note VA2: cross-attention in __init__ is not moved
      to do: write it by hand

models/part.py: rewritten in part, written for vLLM 0.11.2
  line 7  VA1  OldAttention becomes NewAttention
  models/part.py:20:9: error VA2: cross-attention in __init__ is not moved
      to do: write it by hand
  models/part.py:30:9: warning SELF: cross-attention in __init__ is not moved
      to do: write it by hand

models/refused.py: not rewritten
  models/refused.py:5:9: warning VA2: cross-attention in __init__ is not moved
      to do: write it by hand

rules used
  VA1  2x, follows vLLM 0.13 (#1)
  VA2  1x, follows vLLM 0.13 (#1)

files     6 = 1 rewritten, 2 unchanged, 2 needs-attention, 1 failed
sites     7 = 3 rewritten, 3 refused, 1 irrelevant (uses of the old API)
findings  4 = 1 error, 2 warning, 1 note
result    some files failed, each named in an error (exit code 2)
"""


def test_the_whole_report() -> None:
    assert console.render(REPORT, "as given") == WHOLE


def test_a_failed_file_is_one_line_for_the_error_stream() -> None:
    assert console.failures(REPORT) == "error: models/broken.py:4: is not valid Python; correct it and run again\n"


def test_a_failure_that_does_not_name_its_file_is_given_the_name() -> None:
    report = Report("0.32.0", (FileReport("a.py", error="went wrong"), UNTOUCHED))
    assert console.failures(report) == "error: a.py: went wrong\n"


@pytest.mark.parametrize(
    ("files", "dry_run", "result"),
    [
        ((), False, "nothing left to do (exit code 0)"),
        ((REWRITTEN, UNTOUCHED, NOTED), False, "nothing left to do (exit code 0)"),
        ((UNTOUCHED, NOTED), True, "nothing left to do; nothing was written (exit code 0)"),
        ((REWRITTEN,), True, "files would change; nothing was written (exit code 1)"),
        ((REWRITTEN, REFUSED), False, "findings remain for a person (exit code 1)"),
        ((REWRITTEN, PART), True, "findings remain for a person; nothing was written (exit code 1)"),
        ((PART, FAILED), False, "some files failed, each named in an error (exit code 2)"),
    ],
)
def test_the_last_line_says_why_the_exit_code_is_what_it_is(
    files: tuple[FileReport, ...], dry_run: bool, result: str
) -> None:
    report = Report("0.32.0", files, dry_run)
    assert console.render(report, "as given").splitlines()[-1] == f"result    {result}"


def test_a_dry_run_says_would() -> None:
    text = console.render(replace(REPORT, dry_run=True), "as given")
    assert "models/done.py: would be rewritten, written" in text
    assert "models/part.py: would be rewritten in part, written" in text


def test_quiet_leaves_only_what_needs_a_person() -> None:
    assert console.problems(REPORT) == (
        "models/part.py:20:9: error VA2: cross-attention in __init__ is not moved\n"
        "    to do: write it by hand\n"
        "models/part.py:30:9: warning SELF: cross-attention in __init__ is not moved\n"
        "    to do: write it by hand\n"
        "models/refused.py:5:9: warning VA2: cross-attention in __init__ is not moved\n"
        "    to do: write it by hand\n"
    )


def test_quiet_says_which_files_a_check_fails_for() -> None:
    assert console.problems(Report("0.32.0", (REWRITTEN, NOTED, UNTOUCHED), dry_run=True)) == (
        "models/done.py: would be rewritten\n"
    )
    assert console.problems(Report("0.32.0", (REWRITTEN, NOTED, UNTOUCHED))) == ""
