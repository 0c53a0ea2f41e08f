"""`python -m tests.demo_app.vllm_answers MODEL PLUGIN < QUESTIONS > ANSWERS`: two engines of a real vLLM, one after
another, answer with the model, through vLLM's own class and through that of the ported example plugin.

QUESTIONS are conversations as an OpenAI client sends them; ANSWERS are `{"own": [...], "plugin": [...]}`, the words of
each. Engines are forked from a process that has computed nothing yet, so that vLLM is imported once.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from porting import host
from porting.models import engine

SECONDS = 300.0
LONGEST = 24  # tokens of an answer and its end


def main(model: Path, plugin: Path) -> dict[str, list[str]]:
    os.environ.update(engine.ENVIRONMENT)
    engine.TOKENS = LONGEST
    host.prepare_process()
    sys.path.insert(0, str(plugin))
    from orchard_vl.model import OrchardVLForConditionalGeneration
    from transformers import AutoTokenizer
    from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VLForConditionalGeneration

    from porting.forks import forked

    asked = json.load(sys.stdin)
    tokenizer = AutoTokenizer.from_pretrained(model)

    def words(cls: type) -> list[str]:
        answers = forked(
            lambda: engine.in_process(model, "float32", asked, "Qwen2_5_VLForConditionalGeneration", cls), SECONDS
        )
        ends = [answer.tokens.index(tokenizer.eos_token_id) for answer in answers]
        return [tokenizer.decode(answer.tokens[:end]) for answer, end in zip(answers, ends)]

    return {"own": words(Qwen2_5_VLForConditionalGeneration), "plugin": words(OrchardVLForConditionalGeneration)}


if __name__ == "__main__":
    answers = main(Path(sys.argv[1]), Path(sys.argv[2]))
    print(json.dumps(answers))
