"""Where a port first differs from its original, in words."""

from __future__ import annotations

from typing import Any

import pytest

from porting.localise import said

PLACE = {"module": "blocks.0", "side": "output", "token": 7}


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({}, "all submodules that both have give the same"),
        (PLACE, "first in the output of blocks.0, token 7"),  # of a width that is not cut into heads
        ({**PLACE, "picture": 1}, "first in the output of blocks.0, token 7 of picture 1"),
        ({**PLACE, "head": 2}, "first in the output of blocks.0, token 7, head 2"),
        ({**PLACE, "head": 2, "part": "k"}, "first in the output of blocks.0, token 7, k head 2"),
        (
            {**PLACE, "shape": [4, 8], "shape in the original": [8, 4]},
            "first in the output of blocks.0: [4, 8] instead of [8, 4]",
        ),
    ],
)
def test_in_words(where: dict[str, Any], words: str) -> None:
    assert said(where) == words
