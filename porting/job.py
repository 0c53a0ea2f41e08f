"""One question about one model, as data: what a child process is given to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from porting.result import Result, Status


@dataclass(frozen=True)
class Job:
    """A level to run on a ported file.

    `before` is the original of `path`, `before_release` the vLLM that it was written for ("0.12.0"), empty where it is
    to be inferred. `config` is a JSON file with a tiny configuration of the vision tower, for families that
    `porting.towers` does not know. `device` is a torch device type, `dtype` a torch dtype's name, `backend` one of
    "native" (what the device takes by itself), "flash", "triton" and "npu"; both are empty for a level that computes
    nothing. `given` are the files and folders that were given with it: what of them draws on the file is read, and not
    judged. `only` are names of what a level with parts of its own is asked for. `pipeline` is a folder of a
    text-to-image pipeline to draw with, `prompt` what, where the level has no picture of its own.
    """

    path: Path
    level: str
    before: Path | None = None
    before_release: str = ""
    config: Path | None = None
    device: str = "cpu"
    dtype: str = "float32"
    backend: str = "native"
    given: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()
    pipeline: Path | None = None
    prompt: str = ""

    @property
    def model(self) -> str:
        """The name of the model in reports."""
        return self.path.stem

    def result(self, status: Status, summary: str, **facts: Any) -> Result:
        """A result of this job."""
        return Result(
            model=self.model,
            level=self.level,
            status=status,
            summary=summary,
            **{"device": self.device, "dtype": self.dtype, "backend": self.backend, **facts},
        )

    def at(self, **changes: Any) -> Job:
        """This job with other fields."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """For `json.dumps`; the inverse of `from_json`."""
        plain = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        return {**plain, "given": list(map(str, self.given))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        """Read what `to_json` gave."""
        paths = {name: data[name] and Path(data[name]) for name in ("path", "before", "config", "pipeline")}
        return cls(**{**data, **paths, "given": tuple(map(Path, data["given"])), "only": tuple(data["only"])})
