"""The model card of the two shipped folders, filled from the manifest so that it can say nothing else."""

from __future__ import annotations

from typing import Any

from demo_app.training import questions, shapes

TEXT = """\
# Two small models that know coloured shapes

Made by `demo_app/training/` on pictures it draws itself, from seed {seed}; no other data, and no weights of anyone
else. They are real models of their architectures in the hub's layout, so that the demo and the tests run on any laptop
without a download. They stand in for large models; they are no use for anything but the pictures below.

| folder | architecture | size |
|---|---|---|
| `shapes-vl` | `Qwen2_5_VLForConditionalGeneration` | {vl_megabytes:.1f} MB |
{drawing_row}
## What they know

One thing, or for the chat model one or two side by side: {shape_names}, in {colour_names}, on {background_names}. The
chat model answers in English about {kinds}; it also says hello, and that it knows no more than this. Pictures should be
square: every picture is brought to 112x112 pixels. The drawing model draws one upright thing near the middle of 64x64
pixels, for prompts such as "a red circle on a white background", best with 20 steps, `true_cfg_scale=2.5` and
`negative_prompt=" "`.

Anything else, such as a photograph, a third shape, another colour or another language, gets a confident wrong answer or
a wrong drawing.

## Scores

On pictures and questions drawn from a seed that training never used, through the unchanged classes of transformers and
diffusers, with the shipped half-precision weights computed in float32 on a CPU.

Chat model, exact answers to {questions} questions: **{vl_all:.1%}** ({vl_kinds}).
{drawing_scores}
The rule checker names {rules:.1%} of 1,000 true pictures right (colour, shape and background).

`manifest.json` has every figure, the versions, the processor time of each stage and the hash of every file. Another
machine will not train bit-equal weights; the scores are what to compare.
"""

DRAWING_ROW = (
    "| `shapes-image` | `QwenImagePipeline`: transformer, autoencoder, and the chat model as text encoder "
    "| {megabytes:.1f} MB |\n"
)
DRAWING_SCORES = """
Drawing model, {prompts} held-out prompts drawn with the right colour, shape and background: **{rules:.1%}** by the rule
checker, **{vl:.1%}** by the chat model's description, {both:.1%} by both. By the rule checker the colour alone
{colour:.1%}, the shape {shape:.1%}, the background {background:.1%}. Held-out are a fifth of the wordings, and six of
the 72 drawings altogether.
"""


def write(manifest: dict[str, Any], chat: str, drawing: str) -> str:
    """Markdown; without the drawing model's parts where the manifest has no score of it."""
    held_out, files = manifest["held-out scores"], manifest["files"]

    def megabytes(folder: str) -> float:
        return sum(int(entry["bytes"]) for entry in files[folder].values()) / 1e6

    scores = dict(held_out[chat])
    drawn = held_out.get(drawing)
    return TEXT.format(
        seed=manifest["seed"],
        vl_megabytes=megabytes(chat),
        drawing_row=DRAWING_ROW.format(megabytes=megabytes(drawing)) if drawn else "",
        shape_names=", ".join(f"{shape}s" for shape in shapes.SHAPES),
        colour_names=", ".join(shapes.COLOURS),
        background_names=", ".join(shapes.BACKGROUNDS),
        kinds=", ".join(questions.KINDS),
        questions=held_out["questions"],
        vl_all=scores.pop("all"),
        vl_kinds=", ".join(f"{kind} {share:.1%}" for kind, share in scores.items()),
        drawing_scores=DRAWING_SCORES.format(prompts=held_out["prompts"], **drawn) if drawn else "",
        rules=held_out["rules"],
    )
