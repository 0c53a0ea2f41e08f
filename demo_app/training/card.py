"""The model card of the two shipped folders, filled from the manifest so that it can say nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from demo_app.small_models import CHAT, DRAWING
from demo_app.training import prompts, shapes

TEXT = """\
# Two small models that know coloured shapes

Made by `demo_app/training/` on pictures it draws itself, from seed {seed}; no other data, and no weights of anyone
else. They are real models of their architectures in the hub's layout, so that the demo and the tests run on any laptop
without a download. They stand in for large models; they are no use for anything but the pictures below.

| folder | architecture | size |
|---|---|---|
| `shapes-vl` | `Qwen2_5_VLForConditionalGeneration` | {vl_megabytes:.1f} MB |
| `shapes-image` | `QwenImagePipeline`, with the chat model as its text encoder | {drawing_megabytes:.1f} MB |

## What they know

{shape_names} in {colour_names}, on a {background_names} background.

The chat model reads pictures of one of them, or of two side by side, and answers in English: describe, shape, colour,
how many, background, what is on the left and right, is there. It also says hello, and that it knows no more than this.
Every picture is brought to 112x112 pixels, so it should be square.

The drawing model draws one of them, upright and near the middle, in 64x64 pixels, for prompts such as "a red circle on
a white background" or "a red circle", for {steps} steps, `true_cfg_scale={guidance}` and `negative_prompt=" "`.

Anything else, such as a photograph, a third thing, another colour or another language, gets a confident wrong answer or
a wrong drawing.

## Scores

On pictures and questions drawn from a seed that training never used, through the unchanged classes of transformers and
diffusers, the shipped half-precision weights computed in float32 on a CPU.

Chat model, exact answers to {questions:,} questions: **{vl_all:.1%}**.

| of | right |
|---|---|
{vl_rows}

Drawing model, {prompts:,} held-out prompts drawn with the right colour, shape and background: **{drawn[rules]:.1%}** by
the rule checker, **{drawn[vl]:.1%}** by the chat model's description, {drawn[both]:.1%} by both.

| by the rule checker | right |
|---|---|
| colour | {drawn[colour]:.1%} |
| shape | {drawn[shape]:.1%} |
| background | {drawn[background]:.1%} |

Of {short_prompts} held-out prompts that name no background, such as "draw a red circle", {short[rules]:.1%} by the rule
checker and {short[vl]:.1%} by the chat model.

Held-out are a fifth of the wordings, and six of the 72 drawings altogether. The rule checker itself names {rules:.1%}
of 1,000 true pictures right (colour, shape and background).

## How they were trained

Some stages were broken off and went on from their checkpoint towards another number of steps, which lets the learning
rate fall sooner or later than planned at first.

| stage | steps | processor time | runs |
|---|---|---|---|
{stage_rows}

`manifest.json` has every figure, the versions and the hash of every file. Another machine will not train bit-equal
weights; the scores are what to compare.
"""


def write(manifest: dict[str, Any]) -> str:
    """The card, as Markdown."""
    held_out, files = manifest["held-out scores"], manifest["files"]

    def megabytes(folder: str) -> float:
        return sum(int(entry["bytes"]) for entry in files[folder].values()) / 1e6

    scores = dict(held_out[CHAT])
    return TEXT.format(
        seed=manifest["seed"],
        steps=prompts.STEPS,
        guidance=prompts.GUIDANCE,
        vl_megabytes=megabytes(CHAT),
        drawing_megabytes=megabytes(DRAWING),
        shape_names=_listed([f"{shape}s" for shape in shapes.SHAPES], "and").capitalize(),
        colour_names=_listed(shapes.COLOURS, "or"),
        background_names=_listed(shapes.BACKGROUNDS, "or"),
        questions=held_out["questions"],
        vl_all=scores.pop("all"),
        vl_rows="\n".join(f"| {group} | {share:.1%} |" for group, share in scores.items()),
        prompts=held_out["prompts"],
        drawn=held_out[DRAWING],
        short_prompts=held_out["short prompts"],
        short=held_out[f"{DRAWING}, short prompts"],
        rules=held_out["rules"],
        stage_rows="\n".join(_stage(name, told) for name, told in manifest["stages"].items()),
    )


def _listed(names: Iterable[str], last: str) -> str:
    *most, end = names
    return f"{', '.join(most)} {last} {end}"


def _stage(name: str, told: dict[str, Any]) -> str:
    runs = [
        f"from {run['from']:,} towards {run['steps']:,}" + (f" ({run['remark']})" if "remark" in run else "")
        for run in told["runs"]
    ]
    return f"| `{name}` | {told['steps']:,} | {told['processor seconds']:,} s | {'; '.join(runs)} |"
