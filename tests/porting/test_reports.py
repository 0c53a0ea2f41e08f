"""The report in each of its forms, of one run that has everything in it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from porting.device import Device
from porting.discovery import Model
from porting.levels import Level
from porting.report import Column, Report, worst
from porting.reports import console, heat_map, html, markdown, pull_request, write_report
from porting.reports import json as json_report
from porting.result import Result, Status

ROOT = Path(__file__).parents[2]
CPU = Device("cpu", "CPU", "a processor", 2**34, ("float64", "float32"))
LEVELS = (Level("load", "Does it import?", "", (), ()), Level("parity", "Is it equal?", "", ("float32", "float16")))

RIGHT = Result("right", "parity", Status.PASSED, "equal", dtype="float32", backend="native", numbers={"largest": 0.0})
WRONG = Result(
    "wrong",
    "parity",
    Status.FAILED,
    "differs at <token> 3 | head 1",
    dtype="float32",
    backend="native",
    numbers={
        "largest": 0.1251,
        "by picture": {"first": 0.0, "second": float("nan")},
        "error by patch": [[0.0, 0.1251], [0.05, float("inf")]],
        "problems": ["vision.py:7: scale is dropped"],
        "output": "Traceback <of> it",
    },
    notes=("a stub was needed",),
)
REPORT = Report(
    results=(
        Result("right", "load", Status.PASSED, "imports"),
        RIGHT,
        Result("right", "parity", Status.NOT_RUN, "no float16 here", dtype="float16", backend="native"),
        Result("wrong", "load", Status.PASSED, "imports"),
        WRONG,
        Result("wrong", "parity", Status.TIMED_OUT, "no answer within 1 s", dtype="float16", backend="native"),
        Result("unasked", "load", Status.ERROR, "SyntaxError"),
        Result("unasked", "parity", Status.NOT_RUN, "not asked: load found a fault"),
    ),
    models=tuple(Model(Path(f"{name}.py"), name) for name in ("right", "wrong", "unasked")),
    levels=LEVELS,
    device=CPU,
    versions={"vLLM": "0.32.0"},
    command="vitport-check models/",
    seconds=12.0,
)
FORMS = {"console": lambda report: console.render(report, False), "markdown": markdown.render, "html": html.render}
FORMS |= {"json": json_report.render, "pull request": pull_request.render}


def report_of(*statuses: Status) -> Report:
    results = tuple(Result("m", "load", status, "why") for status in statuses)
    return Report(results, (Model(Path("m.py"), "m"),), LEVELS, CPU)


# -- what counts as good ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statuses", "code", "verdict"),
    [
        ([Status.PASSED], 0, "no fault found: 1 passed"),
        ([Status.PASSED, Status.NOT_RUN], 0, "no fault found: 1 passed, 1 not run"),
        ([Status.NOT_RUN], 1, "NOTHING PROVED: 1 not run"),
        ([], 1, "NOTHING PROVED: "),
        ([Status.PASSED, Status.FAILED], 1, "FAULTS FOUND: 1 passed, 1 failed"),
        ([Status.PASSED, Status.ERROR], 1, "FAULTS FOUND: 1 passed, 1 error"),
        ([Status.PASSED, Status.TIMED_OUT], 1, "FAULTS FOUND: 1 passed, 1 timed out"),
    ],
)
def test_the_verdict(statuses: list[Status], code: int, verdict: str) -> None:
    report = report_of(*statuses)
    assert (report.exit_code, report.verdict()) == (code, verdict)


@pytest.mark.parametrize(
    ("statuses", "shown"),
    [
        ([Status.PASSED, Status.FAILED], Status.FAILED),
        ([Status.NOT_RUN, Status.ERROR], Status.ERROR),
        ([Status.PASSED, Status.NOT_RUN], Status.PASSED),
        ([Status.NOT_RUN], Status.NOT_RUN),
        ([], None),
    ],
)
def test_a_cell_shows_its_worst(statuses: list[Status], shown: Status | None) -> None:
    assert worst(report_of(*statuses).results) is shown


def test_a_cell_with_good_and_bad_in_it_says_how_many_are_bad() -> None:
    report = report_of(Status.PASSED, Status.FAILED, Status.PASSED)
    assert "FAIL 1/3" in console.render(report, False)
    assert "| m | **FAIL 1/3** |" in list(markdown.matrix(report))
    assert ">FAIL 1/3</a>" in html.render(report)


def test_a_level_that_was_not_asked_stands_in_all_its_columns() -> None:
    assert REPORT.columns == (
        Column("load"),
        Column("parity", "native", "float32"),
        Column("parity", "native", "float16"),
    )
    shown = [worst(REPORT.cell("unasked", column)) for column in REPORT.columns]
    assert shown == [Status.ERROR, Status.NOT_RUN, Status.NOT_RUN]


# -- every form ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_what_failed_what_did_not_run_and_what_must_be_known(form: str) -> None:
    text = FORMS[form](REPORT).replace("&lt;", "<").replace("&gt;", ">").replace("\\|", "|")
    for told in ("differs at <token> 3 | head 1", "no float16 here", "no answer within 1 s", "a stub was needed"):
        assert told in text
    assert "FAULTS FOUND: 3 passed, 1 failed, 2 not run, 1 error, 1 timed out" in text
    assert "0.125" in text


def test_nothing_is_green_on_the_terminal_but_what_passed() -> None:
    shown = console.render(REPORT, True)
    green = re.findall(r"\x1b\[32m(.*?)\x1b\[0m", shown)
    assert [word.strip() for word in green] == ["pass"] * 3


def test_markdown_is_a_table_of_the_same_width_everywhere() -> None:
    rows = list(markdown.matrix(REPORT))
    assert rows[0] == "| model | load | parity fp32 | parity fp16 |"
    assert rows[2:] == [
        "| right | pass | pass | not run |",
        "| wrong | pass | **FAIL** | **TIME** |",
        "| unasked | **ERROR** | not run | not run |",
    ]


def test_a_pull_request_has_the_headings_that_vllm_asks_for() -> None:
    text = pull_request.render(REPORT)
    assert re.findall("^## (.*)$", text, re.M) == ["Purpose", "Test Plan", "Test Result"]
    assert "`vitport-check models/`" in text
    assert "- parity: Is it equal?" in text


def test_json_is_as_the_schema_says_and_has_no_numbers_that_json_lacks() -> None:
    schema = json.loads((ROOT / "docs" / "check-report.schema.json").read_text())
    data = json.loads(json_report.render(REPORT), parse_constant=pytest.fail)
    jsonschema.validate(data, schema)
    assert data["results"][4]["numbers"]["by picture"] == {"first": 0.0, "second": "nan"}
    assert Result.from_json(data["results"][1]) == RIGHT


def test_the_schema_allows_nothing_that_it_does_not_describe() -> None:
    schema = json.loads((ROOT / "docs" / "check-report.schema.json").read_text())
    data = {**json.loads(json_report.render(REPORT)), "more": 1}
    with pytest.raises(jsonschema.ValidationError, match="'more' was unexpected"):
        jsonschema.validate(data, schema)


# -- the page --------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Tags with their attributes, and whether every tag that was opened was closed in order."""

    VOID = frozenset({"meta", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def attributes(self, name: str) -> list[str]:
        return [str(attributes[name]) for _, attributes in self.tags if name in attributes]


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    page = Page(html.render(REPORT))
    assert page.open == []
    assert not page.attributes("src")
    assert all(link.startswith("#") for link in page.attributes("href"))
    assert {link.removeprefix("#") for link in page.attributes("href")} <= set(page.attributes("id"))


def test_the_page_can_be_read_without_eyes_and_without_colours() -> None:
    page = Page(html.render(REPORT))
    assert ("html", {"lang": "en"}) in page.tags
    headers = [attributes["scope"] for tag, attributes in page.tags if tag == "th"]
    assert {"row", "col"} == set(headers)
    assert any(tag == "caption" for tag, _ in page.tags)
    assert all(attributes["role"] == "img" for tag, attributes in page.tags if tag == "svg")
    text = html.render(REPORT)
    assert text.count(">pass</a>") == 3  # the words stand in the cells, whatever their colour
    assert "prefers-color-scheme: dark" in text


def test_the_cases_behind_a_result_are_a_table_of_the_page() -> None:
    cases = [{"case": "one picture", "difference": 0.0}, {"case": "a video", "difference": 0.00125, "token": 7}]
    result = replace(RIGHT, numbers={"cases": cases})
    rows = re.findall(r"<tr>(<td.*)</tr>", html.render(replace(REPORT, results=(result,))))
    told = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    assert told == [["one picture", "0", ""], ["a video", "0.00125", "7"]]


def test_a_cell_leads_to_the_result_that_it_shows() -> None:
    results = (RIGHT, replace(WRONG, model="right"))
    page = Page(html.render(replace(REPORT, results=results)))
    assert "#r1" in page.attributes("href")
    assert "#r0" not in page.attributes("href")


def test_what_a_model_says_cannot_become_part_of_the_page() -> None:
    evil = Result(
        "m", "load", Status.ERROR, "<script>alert(1)</script>", numbers={"<b>": "<i>", "output": "</pre><img>"}
    )
    page = Page(html.render(Report((evil,), (Model(Path("m.py"), "m"),), LEVELS, CPU)))
    assert [tag for tag, _ in page.tags if tag in ("script", "b", "i", "img")] == ["script"]  # the page's own


def test_a_table_of_numbers_is_a_picture() -> None:
    ((name, grid),) = heat_map.heat_maps(
        {"errors": {"first": [[0.0, 1.0], [2.0, 4.0]]}, "words": ["a"], "ragged": [[1], [1, 2]]}
    )
    assert name == "errors, first"
    drawn = heat_map.draw(name, grid)
    assert re.findall(r'fill-opacity="([\d.]+)"', drawn) == ["0.000", "0.250", "0.500", "1.000"]
    assert "errors, first: largest 4, 4 of 4 finite" in drawn


def test_a_picture_is_named_by_what_stands_beside_it() -> None:
    numbers = {"maps": [{"picture": 0, "errors": [[0.5]]}, {"picture": 1, "errors": [[1.0], [0.0]]}]}
    assert heat_map.heat_maps(numbers) == [
        ("maps, picture 0, errors", [[0.5]]),
        ("maps, picture 1, errors", [[1.0], [0.0]]),
    ]
    assert (
        "maps" not in html.render(replace(REPORT, results=(replace(WRONG, numbers=numbers),))).partition("<figure>")[0]
    )


def test_a_large_table_keeps_its_largest_numbers() -> None:
    grid = [[0.0] * 200 for _ in range(100)]
    grid[57][131] = 3.0
    drawn = heat_map.draw("errors", grid)
    assert drawn.count("<rect") == 50 * 25
    assert drawn.count('fill-opacity="1.000"') == 1


def test_what_is_not_finite_is_outlined_and_shades_nothing() -> None:
    drawn = heat_map.draw("errors", [[1.0, float("nan"), float("inf")]])
    assert drawn.count('class="odd"') == 2
    assert 'fill-opacity="1.000"' in drawn


def test_a_report_is_written_though_the_name_of_a_file_is_no_text(tmp_path: Path) -> None:
    """Python reads a name that is not UTF-8 with lone surrogates, which UTF-8 cannot write."""
    report = replace(REPORT, models=(Model(Path("tower\udce9.py"), "tower"),))
    write_report(report, tmp_path / "r.json")
    (model,) = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["models"]
    assert model["path"] == "tower\udce9.py"


# -- each thing once -------------------------------------------------------------------------------------------------

SHARED = ["attention.py:5: is not ported", "attention.py:9: is a subclass"]
TWO_MODELS = replace(
    REPORT,
    results=(
        Result("a", "load", Status.FAILED, SHARED[0], numbers={"problems": SHARED, "missing": "", "line": None}),
        Result("b", "load", Status.FAILED, SHARED[0], numbers={"problems": [*SHARED, "b.py:3: is its own"]}),
        Result("c", "load", Status.PASSED, "imports", notes=("built as kelp", "built as kelp")),
        Result("d", "load", Status.PASSED, "imports", notes=("built as kelp",)),
    ),
    models=tuple(Model(Path(f"{name}.py"), name) for name in "abcd"),
    asked=3,
)


@pytest.mark.parametrize("form", ["console", "markdown", "pull request", "html"])
def test_what_two_models_share_is_told_once(form: str) -> None:
    text = FORMS[form](TWO_MODELS)
    assert text.count("attention.py:9: is a subclass") == 1
    assert text.count("2 that a load has as well") == 1
    assert text.count("b.py:3: is its own") == 1


@pytest.mark.parametrize("form", ["console", "markdown", "pull request"])
def test_a_note_is_told_once_with_all_that_it_is_of(form: str) -> None:
    (line,) = [line for line in FORMS[form](TWO_MODELS).splitlines() if "built as kelp" in line]
    assert "c load, d load" in line


@pytest.mark.parametrize("form", ["console", "markdown", "pull request", "html"])
def test_results_are_told_from_the_questions_that_progress_counts(form: str) -> None:
    said = "4 results of 3 questions: one for each tower of a file"
    assert said in FORMS[form](TWO_MODELS)
    assert said not in FORMS[form](replace(TWO_MODELS, asked=4))


@pytest.mark.parametrize("form", ["console", "markdown", "pull request", "html"])
def test_what_is_not_known_is_no_number(form: str) -> None:
    text = FORMS[form](TWO_MODELS)
    assert "missing" not in text
    assert "None" not in text


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MEASURE = """\
<iframe id="page" src="page.html" width="400" height="800"></iframe><pre id="told"></pre>
<script>
page.onload = () => { const root = page.contentDocument.documentElement;
  told.textContent = `${root.scrollWidth} in ${root.clientWidth}`; };
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no browser found; install one (Debian, Ubuntu: apt-get install chromium)")
def test_the_page_does_not_scroll_sideways_on_a_phone(tmp_path: Path) -> None:
    """Long paths break. What is as wide as its table, the matrix, scrolls in a frame of its own."""
    long = "a_folder_with_a_name/" * 8 + "orchard.py"
    models = tuple(replace(model, path=Path("/", long)) for model in REPORT.models)
    report = replace(REPORT, others=(long, long), models=models, command=f"vitport-check {long}")
    (tmp_path / "page.html").write_text(html.render(report))
    (tmp_path / "measure.html").write_text(MEASURE)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    done = subprocess.run(
        [CHROMIUM or "", *options, f"--user-data-dir={tmp_path}/profile", (tmp_path / "measure.html").as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    told = re.search(r"(\d+) in (\d+)</pre>", done.stdout)
    assert told, done.stdout
    assert told[1] == told[2]
