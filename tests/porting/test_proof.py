"""docs/proof.md tells the truth: what it says of two of its towers is what a check finds now."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from docs.make_proof import PAGE, ROUTES, section

pytestmark = pytest.mark.vllm

ONE_RIGHT_ONE_FAULTY = ("keye", "qwen2_vl")  # all nine take five minutes
FIGURE = re.compile(r" \d(?:e-\d+)?(?= \|)")  # the last digits depend on the processor


def rows(text: str) -> dict[str, str]:
    return {line.split()[1]: FIGURE.sub("", line) for line in text.splitlines() if line.startswith("| ")}


def test_two_towers_are_found_as_the_page_says() -> None:
    found = rows("\n".join(section(replace(ROUTES[0], files=ONE_RIGHT_ONE_FAULTY))))
    written = rows(PAGE.read_text(encoding="utf-8").split("\n## ")[1])  # the section of that route
    assert found == {name: written[name] for name in ("file", *ONE_RIGHT_ONE_FAULTY)}
