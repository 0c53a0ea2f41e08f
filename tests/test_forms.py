"""The forms in which code of the old API is met, each a small file (or package) with its right answer beside it.

`forms/<name>.before.py` (or `.ipynb`, or a folder) is ported, and must become `<name>.after.py`, to the byte; where
there is none, nothing may change. `forms/forms.json` says what the form is, for which vLLM it is ported (0.32 unless it
says so), and which findings the port has to leave, by rule, line, severity and a part of the message. There must be no
others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codemods import vllm_api
from codemods.findings import Report
from codemods.run import Options, migrate

FOLDER = Path(__file__).parent / "forms"
FORMS: dict[str, dict[str, Any]] = json.loads((FOLDER / "forms.json").read_text(encoding="utf-8"))


def texts(name: str) -> dict[str, bytes]:
    """The files of the folder `<name>`, or the one file of that name, as they are called where they are ported."""
    package = FOLDER / name
    if package.is_dir():
        return {path.name: path.read_bytes() for path in sorted(package.iterdir()) if path.is_file()}
    return {f"model{file.suffix}": file.read_bytes() for file in FOLDER.glob(f"{name}.*")}


def ported(form: str, state: str, folder: Path) -> tuple[dict[str, bytes], Report]:
    """The files of a form after a run."""
    given = texts(f"{form}.{state}")
    for name, text in given.items():
        (folder / name).write_bytes(text)
    report = migrate([folder], Options(vllm_api.resolve(FORMS[form].get("target", "0.32"))))
    return {name: (folder / name).read_bytes() for name in given}, report


def answer(form: str) -> str:
    return "after" if texts(f"{form}.after") else "before"


def found(report: Report) -> list[tuple[str, int, str, str]]:
    return [
        (finding.code, finding.line, finding.severity.value, finding.message)
        for file in report.files
        for finding in file.findings
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_has_the_right_answer(form: str, tmp_path: Path) -> None:
    after, report = ported(form, "before", tmp_path)
    assert after == texts(f"{form}.{answer(form)}")

    told = found(report)
    for row in FORMS[form].get("findings", []):
        place = (row["rule"], row["line"], row["severity"])
        expected = next((line for line in told if line[:3] == place and row["message"] in line[3]), None)
        assert expected is not None, f"{row} is not among {told}"
        told.remove(expected)
    assert not told


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_stays_as_it_is(form: str, tmp_path: Path) -> None:
    after, report = ported(form, answer(form), tmp_path)
    assert after == texts(f"{form}.{answer(form)}")
    assert not [line for file in report.files for line in file.rewrites]


def test_every_form_is_told_of() -> None:
    assert {path.name.partition(".")[0] for path in FOLDER.iterdir()} == {*FORMS, "forms"}


def test_forms_keep_what_is_special_of_them() -> None:
    """An editor or a version control system that makes the files tidy would make their tests worthless."""
    (crlf,), (mixed,) = (texts(f"{form}.before").values() for form in ("crlf", "crlf_lines_in_lf"))
    assert crlf.count(b"\r\n") == crlf.count(b"\n")
    assert 0 < mixed.count(b"\r\n") < mixed.count(b"\n")
    (text,) = texts("no_newline_at_end.before").values()
    assert not text.endswith(b"\n")
    (text,) = texts("trailing_spaces.before").values()
    assert b" \n" in text
    (text,) = texts("byte_order_mark.before").values()
    assert text.startswith(b"\xef\xbb\xbf")
    (text,) = texts("coding_line.before").values()
    with pytest.raises(UnicodeDecodeError):
        text.decode()
