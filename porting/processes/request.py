"""What goes over a job's channel: one request in, one answer out, each a line of JSON."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from porting.job import Job
from porting.levels import Level
from porting.processes.limits import Limits
from porting.result import Result


@dataclass(frozen=True)
class Request:
    """A job, the level that answers it, its limits, and the folder that it may write into."""

    job: Job
    level: Level
    limits: Limits
    folder: Path

    def to_line(self) -> bytes:
        parts = {"level": asdict(self.level), "limits": asdict(self.limits), "folder": str(self.folder)}
        return _line({"job": self.job.to_json(), **parts})

    @classmethod
    def from_line(cls, line: bytes) -> Request:
        data = json.loads(line)
        return cls(
            Job.from_json(data["job"]), level_from_json(data["level"]), Limits(**data["limits"]), Path(data["folder"])
        )


def level_from_json(data: Mapping[str, Any]) -> Level:
    """What `dataclasses.asdict` made of a level and JSON may have carried."""
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    return Level(**fields)


def results_to_line(results: Sequence[Result]) -> bytes:
    return _line([result.to_json() for result in results])


def results_from_line(line: bytes) -> list[Result]:
    """Raises ValueError if the line is not whole."""
    return [Result.from_json(data) for data in json.loads(line)]


def _line(data: object) -> bytes:
    """Not-a-number and infinity stay what they are; what else JSON has no word for is written as text."""
    return json.dumps(data, default=str).encode() + b"\n"


def read_line(channel: socket.socket) -> bytes:
    """Up to the first newline, or to the end."""
    parts: list[bytes] = []
    while not (parts and parts[-1].endswith(b"\n")):
        part = channel.recv(2**16)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)
