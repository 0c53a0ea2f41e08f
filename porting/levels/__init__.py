"""The levels of proof, in the order in which they are asked. Each is a module with `run(job) -> list[Result]`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from porting.job import Job
from porting.result import Result

BACKENDS = ("native", "flash", "triton", "npu")
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Level:
    """`question` is what the level answers, for people; `module` is where its `run` is.

    A level is asked once for each of its `dtypes` and `backends`; one without them computes nothing. It is not asked of
    a file for which a level of `after` found a fault: it could only find the same one again.
    """

    name: str
    question: str
    module: str
    dtypes: tuple[str, ...] = ("float32",)
    backends: tuple[str, ...] = ("native",)
    after: tuple[str, ...] = ()
    needs_vllm: bool = True
    fresh: bool = False  # in an interpreter that has imported nothing before

    def run(self, job: Job) -> list[Result]:
        """Answer in this process, which may be ruined by it: backends patch classes, models keep state."""
        results: list[Result] = import_module(self.module).run(job)
        return results


LEVELS = (
    Level(
        "static",
        "Does every vLLM name and call fit the target, and what will only break elsewhere?",
        "porting.levels.static",
        dtypes=(),
        backends=(),
        needs_vllm=False,
        fresh=True,
    ),
    Level(
        "interfaces",
        "Do the whole model and its processor fit what vLLM calls of them?",
        "porting.levels.interfaces",
        dtypes=(),
        backends=(),
        needs_vllm=False,
        fresh=True,
    ),
    Level(
        "load",
        "Does the file import under the installed vLLM?",
        "porting.levels.load",
        dtypes=(),
        backends=(),
        fresh=True,
    ),
    Level(
        "build",
        "Does the vision tower build, under the parameter names of the original?",
        "porting.levels.build",
        after=("load",),
    ),
    Level(
        "parity",
        "Same weights, same pictures: same numbers as the original and as an fp64 reference?",
        "porting.levels.parity",
        dtypes=DTYPES,
        after=("load", "build"),
    ),
    Level(
        "paths",
        "Would the flash, Triton and NPU kernels be called as they insist on?",
        "porting.levels.paths",
        backends=("flash", "triton", "npu"),
        after=("load", "build"),
    ),
    Level(
        "parallel",
        "Does it hold under tensor parallelism of two?",
        "porting.levels.parallel",
        after=("load", "build"),
    ),
    Level(
        "embeddings",
        "Does embed_multimodal of the whole model give the right vectors for each picture?",
        "porting.levels.embeddings",
        after=("load",),
    ),
    Level("serve", "Does the real engine answer with it?", "porting.levels.serve", after=("load",)),
)
