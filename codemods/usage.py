"""How every command here reads its arguments, and says that they are wrong."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

BAD_USAGE = 2


class Parser(argparse.ArgumentParser):
    """Takes options, none of them shortened, and paths; a mistake is one line and the exit code BAD_USAGE."""

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=prog,
            usage=f"{prog} [options] PATH...",
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """One line, not the whole usage: the message says what to do."""
        self.exit(BAD_USAGE, f"{self.prog}: {message} ({self.prog} --help explains)\n")


def given_path(text: str) -> Path:
    """The type of an argument that names a file or folder. An unset variable of a shell must not mean "all that is
    here", as an empty path does in Python."""
    if not text.strip():
        raise argparse.ArgumentTypeError("an empty PATH was given; name a file or a folder, '.' for the one you are in")
    return Path(text)


def report_file(suffixes: Sequence[str]) -> Callable[[str], Path]:
    """The type of an argument that names a report to write, in the form that its suffix says."""

    def parse(text: str) -> Path:
        path = Path(text)
        if path.suffix not in suffixes:
            raise argparse.ArgumentTypeError(f"{text!r} names no form of report; end it in {' or '.join(suffixes)}")
        if not path.parent.is_dir():
            raise argparse.ArgumentTypeError(f"the folder of {text!r} does not exist")
        return path

    return parse
