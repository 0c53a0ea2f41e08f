"""The least that a LibCST codemod can do: parse files and print them again."""

import sys
from multiprocessing import get_context
from pathlib import Path

import libcst


def parse_and_print(name: str) -> bool:
    """Whether the text came out as it went in."""
    text = Path(name).read_bytes()
    return libcst.parse_module(text).bytes == text


def main(jobs: int, names: list[str]) -> int:
    """`parse_and_print.py JOBS FILE...`; exits 1 if a text came out otherwise."""
    if jobs == 1:
        return not all(map(parse_and_print, names))
    with get_context("fork").Pool(jobs) as pool:
        return not all(pool.map(parse_and_print, names, chunksize=1))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
