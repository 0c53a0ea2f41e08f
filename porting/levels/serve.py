"""Does the real engine answer with it? A tiny checkpoint, served by vLLM's own class and by the port: the same tokens.

The port answers twice: from an engine in a process, and from an OpenAI-compatible server on loopback. There it is
registered as it will be, by its plugin's entry point, or by one of ours for a file that has none.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from porting import host
from porting.forks import ForkFailed, ForkHangs, forked
from porting.job import Job
from porting.models import checkpoint, engine
from porting.models.engine import Answer, Conversation, NoServer
from porting.models.find import NoWholeModel, Whole, find
from porting.models.server import renamed
from porting.result import Result, Status

SECONDS = 300.0  # for one engine; most of it is vLLM's start

# Logarithms of probabilities that may differ without a fault: the last bits of sums, in the dtype of the engine.
ALLOWED = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 3e-1}


def run(job: Job) -> list[Result]:
    """One result: the reference's answers are asked of the port twice."""
    os.environ.update(engine.ENVIRONMENT)
    host.prepare_process()
    from porting.model_file import load

    try:
        whole = find(load(job.path), job.path)
        if whole.stock not in checkpoint.PROCESSORS:
            raise NoWholeModel(f"no tiny checkpoint is made for {whole.stock}, only {', '.join(checkpoint.PROCESSORS)}")
    except NoWholeModel as reason:
        return [job.result(Status.NOT_RUN, str(reason))]
    with tempfile.TemporaryDirectory(prefix="vitport-") as folder:
        return [_compare(job, whole, Path(folder))]


def _compare(job: Job, whole: Whole, folder: Path) -> Result:
    reference, port = folder / "reference", folder / "port"
    reference.mkdir()
    checkpoint.write(reference, whole.stock)
    renamed(reference, port, whole.architecture)
    path = whole.plugin.announce(folder / "plugin")
    asked = questions()

    def as_reference() -> list[Answer]:
        return engine.in_process(reference, job.dtype, asked, whole.stock, whole.stock_class)

    def as_port() -> list[Answer]:
        return engine.in_process(port, job.dtype, asked, whole.architecture, whole.cls)

    def as_server() -> list[Answer]:
        return engine.behind_server(port, job.dtype, asked, path, whole.environment, SECONDS)

    try:
        expected = forked(as_reference, SECONDS)
    except ForkFailed as failure:
        return _failed(job, Status.ERROR, f"vLLM's own {whole.stock} does not answer: {failure}", failure.trace)
    if expected[0].tokens == expected[1].tokens:
        return job.result(Status.ERROR, f"vLLM's own {whole.stock} says the same of two different pictures")
    numbers: dict[str, float] = {"tokens": sum(len(answer.tokens) for answer in expected)}
    ways: dict[str, Callable[[], list[Answer]]] = {"in process": lambda: forked(as_port, SECONDS), "server": as_server}
    for way, ask in ways.items():
        try:
            answers = ask()
        except ForkHangs as failure:
            return _failed(job, Status.TIMED_OUT, f"{way}: {failure}", failure.trace)
        except ForkFailed as failure:
            return _failed(job, Status.FAILED, f"{way}: {failure}", failure.trace)
        except NoServer as failure:
            return _failed(job, Status.FAILED, f"{way}: {failure}", failure.log)
        numbers[f"{way}: logprob"] = furthest(answers, expected)
        fault = different(answers, expected, ALLOWED[job.dtype])
        if fault:
            return job.result(Status.FAILED, f"{way}: {fault}", numbers=numbers)
    how = "registered by this check" if whole.environment else "registered by its plugin"
    summary = f"{whole.architecture} ({how}) answers as vLLM's own {whole.stock}, in process and behind a server"
    return job.result(Status.PASSED, summary, numbers=numbers)


def questions() -> list[Conversation]:
    """Two pictures of one size, asked about alone; two of different sizes together; and no picture."""
    from PIL import Image

    generator = torch.Generator().manual_seed(0)

    def picture(height: int, width: int) -> dict[str, Any]:
        pixels = torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8)
        png = BytesIO()
        Image.fromarray(pixels.numpy()).save(png, "PNG")
        url = f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}

    text = {"type": "text", "text": "What is it?"}
    contents = [[picture(56, 84), text], [picture(56, 84), text], [picture(84, 84), picture(112, 56), text], [text]]
    return [[{"role": "user", "content": content}] for content in contents]


def different(answers: Sequence[Answer], expected: Sequence[Answer], allowed: float) -> str:
    """Where answers are not as expected, in words; empty where they are."""
    for number, (answer, right) in enumerate(zip(answers, expected, strict=True), 1):
        for place, (token, other) in enumerate(zip(answer.tokens, right.tokens, strict=True), 1):
            if token != other:
                return f"answer {number}, token {place}: {token} where vLLM's own model says {other}"
    distance = furthest(answers, expected)
    return "" if distance <= allowed else f"the same tokens, but log probabilities differ by {distance:.2g}"


def furthest(answers: Sequence[Answer], expected: Sequence[Answer]) -> float:
    """The largest difference of the logarithms of probabilities."""
    pairs = [pair for answer, right in zip(answers, expected) for pair in zip(answer.logprobs, right.logprobs)]
    return max(abs(one - other) for one, other in pairs)


def _failed(job: Job, status: Status, summary: str, trace: str) -> Result:
    return job.result(status, summary, notes=tuple(trace.strip().splitlines()[-20:]))
