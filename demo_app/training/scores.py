"""Scores of the shipped folders, through the unchanged classes of transformers and diffusers.

Pictures and questions are fresh, from a seed no stage has trained on or looked at; prompts are held-out ones.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from demo_app.training import prompts, questions, rules, shapes
from demo_app.training.prompts import Prompt

SEED = 4711
QUESTIONS, PROMPTS, TRUE_PICTURES = 1000, 300, 1000
PICTURE = 112  # pixels along a side of the questions' pictures
BATCH = 50


def load_vl(folder: Path) -> tuple[Any, Any]:
    """Model and processor, in float32 on the CPU."""
    from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.eval(), AutoProcessor.from_pretrained(folder, local_files_only=True)


def load_drawing(folder: Path) -> Any:
    """The pipeline, in float32 on the CPU, without its progress bar."""
    from diffusers import QwenImagePipeline

    pipeline = QwenImagePipeline.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def answers(vl: tuple[Any, Any], pictures: list[Image.Image], asked: list[str]) -> list[str]:
    """The greedy answer to one question about each picture."""
    model, processor = vl
    said: list[str] = []
    for first in range(0, len(asked), BATCH):
        texts = [
            processor.apply_chat_template(
                [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}],
                add_generation_prompt=True,
            )
            for question in asked[first : first + BATCH]
        ]
        inputs = processor(
            text=texts,
            images=pictures[first : first + BATCH],
            padding=True,
            padding_side="left",
            return_mm_token_type_ids=True,
            return_tensors="pt",
        )
        made = model.generate(**inputs, max_new_tokens=40, do_sample=False)
        said += processor.batch_decode(made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return said


def quiz(count: int, seed: int = SEED) -> list[tuple[str, Image.Image, str, str]]:
    """(kind, picture, question, true answer): the kinds in turn, one thing and two things in turn."""
    rng, made = np.random.default_rng(seed), []
    for index in range(count):
        scene = shapes.random_scene(rng, 1 + index % 2)
        picture = shapes.draw(scene, PICTURE, rng)
        kind = questions.KINDS[(index // 2) % len(questions.KINDS)]
        made.append((kind, shapes.wear(picture, rng), *questions.ask(scene, rng, kind)))
    return made


def score_vl(vl: tuple[Any, Any], count: int, seed: int = SEED) -> dict[str, float]:
    """Share of exact answers: of all, of each kind, of pictures with one and with two things."""
    asked = quiz(count, seed)
    said = answers(vl, [picture for _, picture, _, _ in asked], [question for _, _, question, _ in asked])
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for index, ((kind, _, _, true), answer) in enumerate(zip(asked, said)):
        for group in ("all", kind, ("one thing", "two things")[index % 2]):
            total[group] += 1
            right[group] += answer == true
    return {group: round(right[group] / total[group], 4) for group in total}


def score_rules(count: int, seed: int = SEED) -> float:
    """Share of true pictures, clean and worn, of which the rules name colour, shape and background."""
    rng, right = np.random.default_rng(seed), 0
    for index in range(count):
        scene = shapes.prompt_scene(rng) if index % 2 else shapes.random_scene(rng, 1)
        picture = shapes.draw(scene, 64 if index % 3 else PICTURE, rng)
        picture = shapes.wear(picture, rng) if index % 4 > 1 else picture
        thing = scene.things[0]
        right += rules.judge(picture).shown == (thing.colour, thing.shape, scene.background)
    return right / count


def score_drawing(
    pipeline: Any, vl: tuple[Any, Any], held: list[Prompt], count: int, seed: int = SEED
) -> dict[str, float]:
    """Share of some of the prompts drawn right, by the rules, by the VL model's description, and by both."""
    some = [held[i] for i in np.random.default_rng(seed).permutation(len(held))[:count]]
    drawn: list[Image.Image] = []
    for first in range(0, len(some), BATCH):
        part = some[first : first + BATCH]
        drawn += draw(pipeline, [prompt.text for prompt in part], seed + first)
    told = answers(vl, drawn, ["Describe the picture."] * len(some))
    right: Counter[str] = Counter()
    for prompt, picture, words in zip(some, drawn, told):
        hits = dict(zip(("colour", "shape", "background"), prompt.hits(*rules.judge(picture).shown)))
        by_rules, by_vl = all(hits.values()), words in described(prompt)
        right.update(**hits, rules=by_rules, vl=by_vl, both=by_rules and by_vl)
    groups = ("colour", "shape", "background", "rules", "vl", "both")
    return {group: round(right[group] / len(some), 4) for group in groups}


def described(prompt: Prompt) -> list[str]:
    """What the VL model says of a right drawing: one sentence for each background that will do."""
    thing = questions.a(f"{prompt.colour} {prompt.shape}")
    backgrounds = [prompt.background] if prompt.background else shapes.BACKGROUNDS
    return [questions.sentence(f"{thing} on a {background} background") for background in backgrounds]


def draw(pipeline: Any, texts: list[str], seed: int) -> list[Image.Image]:
    """One 64x64 picture for each prompt, with the settings the model was trained for."""
    made = pipeline(
        prompt=texts,
        negative_prompt=[prompts.NEGATIVE] * len(texts),
        true_cfg_scale=prompts.GUIDANCE,
        num_inference_steps=prompts.STEPS,
        height=64,
        width=64,
        generator=torch.Generator().manual_seed(seed),
    )
    return list(made.images)
