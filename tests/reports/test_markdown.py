"""The report as a maintainer pastes it into an issue."""

from __future__ import annotations

from dataclasses import replace

from codemods.findings import FileReport, Report, Severity
from codemods.reports import markdown
from tests.reports.sample import REPORT, UNTOUCHED, finding

WHOLE = """\
# Port to vLLM 0.32.0

By vitport 1.2.3: some files failed, each named in an error (exit code 2).

- files: 6 = 1 rewritten, 2 unchanged, 2 needs-attention, 1 failed
- sites: 7 = 3 rewritten, 3 refused, 1 irrelevant
- findings: 4 = 1 error, 2 warning, 1 note

## Left for a person

### `models/noted.py`

- line 6, **note** `VA2`: cross-attention in \\_\\_init\\_\\_ is not moved
  - to do: write it by hand

### `models/part.py`

- [ ] line 20, **error** `VA2`: cross-attention in \\_\\_init\\_\\_ is not moved
  - to do: write it by hand
- [ ] line 30, **warning** `SELF`: cross-attention in \\_\\_init\\_\\_ is not moved
  - to do: write it by hand

### `models/refused.py`

- [ ] line 5, **warning** `VA2`: cross-attention in \\_\\_init\\_\\_ is not moved
  - to do: write it by hand

## Failed, left as they were

- [ ] models/broken.py:4: is not valid Python; correct it and run again

## Rewritten

<details><summary>3 rewrites in 2 files</summary>

### `models/done.py`, written for vLLM 0.12.0

- line 3, `VA1`: OldAttention becomes NewAttention (safe; follows vLLM 0.13 (#1))
- line 12, `VA2`: OldAttention becomes NewAttention (review: the scale; follows vLLM 0.13 (#1))

### `models/part.py`, written for vLLM 0.11.2

- line 7, `VA1`: OldAttention becomes NewAttention (safe; follows vLLM 0.13 (#1))

</details>
"""


def test_the_whole_report() -> None:
    assert markdown.render(REPORT) == WHOLE


def test_a_dry_run_says_would() -> None:
    assert "## Would be rewritten\n" in markdown.render(replace(REPORT, dry_run=True))


def test_nothing_to_do_is_the_head_alone() -> None:
    assert markdown.render(Report("0.32.0", (UNTOUCHED,))).count("#") == 1


def test_code_spans_stay_and_markup_elsewhere_is_escaped() -> None:
    message = "`_b<c>` gives <b> and *x*, not max_seqlen"
    file = FileReport("a.py", findings=(replace(finding(1, Severity.ERROR), message=message),))
    assert "`_b<c>` gives \\<b> and \\*x\\*, not max_seqlen\n" in markdown.render(Report("0.32.0", (file,)))
