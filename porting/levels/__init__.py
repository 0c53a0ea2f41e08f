"""The levels of proof, in the order in which they are asked. Each is a module with `run(job) -> list[Result]`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from porting.job import Job
from porting.result import Result


@dataclass(frozen=True)
class Level:
    """`question` is what the level answers, for people. `needs_vllm`: it imports vLLM, so its process is expensive."""

    name: str
    question: str
    needs_vllm: bool = True

    def run(self, job: Job) -> list[Result]:
        """Answer in this process, which may be ruined by it: backends patch classes, models keep state."""
        module = import_module(f"porting.levels.{self.name}")
        results: list[Result] = module.run(job)
        return results


LEVELS = (
    Level(
        "static", "Does every vLLM name and call fit the target, and what will only break elsewhere?", needs_vllm=False
    ),
    Level("load", "Does the file import under the installed vLLM?"),
    Level("build", "Does the vision tower build, under the parameter names of the original?"),
    Level("parity", "Same weights, same pictures: same numbers as the original and as an fp64 reference?"),
    Level("paths", "Would the flash, Triton and NPU kernels be called as they insist on?"),
    Level("parallel", "Does it hold under tensor parallelism of two?"),
    Level("embeddings", "Does embed_multimodal of the whole model give the right vectors for each picture?"),
    Level("serve", "Does the real engine answer with it?"),
)
