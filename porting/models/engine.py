"""A real vLLM engine that answers conversations, in this process or behind an OpenAI-compatible server on loopback."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from porting.models.server import ENVIRONMENT as ENVIRONMENT
from porting.models.server import OPTIONS, Server
from porting.models.server import NoServer as NoServer

Conversation = list[dict[str, Any]]  # messages as an OpenAI client sends them

TOKENS = 16


@dataclass(frozen=True)
class Answer:
    """The greedy tokens and the logarithm of each one's probability."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


def in_process(
    model: Path, dtype: str, conversations: Sequence[Conversation], architecture: str, cls: type[nn.Module]
) -> list[Answer]:
    """Answers of an engine in this process, which is spent by it. ENVIRONMENT has to be set before vLLM is imported.

    The class is registered as such: what vLLM only knows the name of it looks into in one more process, for half a
    minute.
    """
    from vllm import LLM, ModelRegistry, SamplingParams

    ModelRegistry.register_model(architecture, cls)
    engine = LLM(str(model), dtype=dtype, **OPTIONS)
    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=0)
    completions = [output.outputs[0] for output in engine.chat(list(conversations), sampling, use_tqdm=False)]
    return [
        Answer(
            tuple(completion.token_ids),
            tuple(step[token].logprob for step, token in zip(completion.logprobs, completion.token_ids)),
        )
        for completion in completions
    ]


def behind_server(
    model: Path,
    dtype: str,
    conversations: Sequence[Conversation],
    path: Sequence[Path],
    environment: Mapping[str, str],
    seconds: float,
) -> list[Answer]:
    """Answers of a server that is started for them, with `path` ahead on its import path. Raises NoServer."""
    server = Server(model, dtype, path, environment)
    try:
        deadline = time.monotonic() + seconds
        server.wait(deadline)
        return [_answer(server, each, deadline) for each in conversations]
    finally:
        server.end()


def _answer(server: Server, conversation: Conversation, deadline: float) -> Answer:
    wanted = {"max_tokens": TOKENS, "ignore_eos": True, "logprobs": True, "return_token_ids": True}
    choice = server.ask(conversation, deadline - time.monotonic(), **wanted)
    return Answer(tuple(choice["token_ids"]), tuple(step["logprob"] for step in choice["logprobs"]["content"]))
