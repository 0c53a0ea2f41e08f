"""Stage 5: the trained weights as folders in the hub's layout, with their scores, hashes and cards."""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shutil
from importlib.metadata import version
from pathlib import Path

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, QwenImagePipeline
from transformers import (
    GenerationConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

from demo_app.small_models import CHAT, DRAWING, MODELS
from demo_app.training import card, loop, prompts, scores, text_to_image, tokenizer, tower, vae, vl

STAGES = ("tower", "vl", "vae", "text_to_image")
PIXELS = tower.SIDE**2


def save_vl(out: Path, folder: Path) -> None:
    """The chat model: half precision, and a processor that brings every picture to 112x112."""
    words = tokenizer.make()
    model = Qwen2_5_VLForConditionalGeneration(vl.config(words))
    model.load_state_dict(torch.load(out / "vl-final.pt", weights_only=True))
    model.generation_config = GenerationConfig(
        do_sample=False,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        max_new_tokens=48,
    )
    model.half().save_pretrained(folder)
    size = {"shortest_edge": PIXELS, "longest_edge": PIXELS}
    Qwen2_5_VLProcessor(
        image_processor=Qwen2VLImageProcessor(size=size),
        tokenizer=words,
        video_processor=Qwen2VLVideoProcessor(size=size),
        chat_template=tokenizer.CHAT_TEMPLATE,
    ).save_pretrained(folder)


def save_drawing(out: Path, chat: Path, folder: Path) -> None:
    """The pipeline, with the chat model as its text encoder."""
    saved = torch.load(out / "text_to_image-final.pt", weights_only=True)
    transformer = text_to_image.make()
    transformer.load_state_dict(saved["model"])
    coder = vae.make()
    coder.load_state_dict(torch.load(out / "vae-final.pt", weights_only=True))
    mean, deviation = saved["scale"].tolist()
    coder.register_to_config(latents_mean=mean, latents_std=deviation)
    for name, weight in coder.named_parameters():
        if "time_conv" in name:  # only films come through here
            weight.data.zero_()
    QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0),
        vae=coder.half(),
        text_encoder=Qwen2_5_VLForConditionalGeneration.from_pretrained(chat, dtype=torch.float16),
        tokenizer=tokenizer.make(),
        transformer=transformer.half(),
    ).save_pretrained(folder)


def digests(folder: Path) -> dict[str, dict[str, object]]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "bytes": path.stat().st_size,
        }
        for path in files
    }


def stage(out: Path, name: str) -> dict[str, object]:
    """From its last checkpoint: steps, processor time, and the runs it was trained in, each towards some steps."""
    saved = torch.load(out / f"{name}.pt", weights_only=True)
    return {"steps": saved["step"], "processor seconds": round(saved["cpu"]), "runs": saved["runs"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--to", type=Path, default=MODELS, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=20, help="the seed the stages ran with (default: %(default)s)")
    options = parser.parse_args()
    loop.start(options.seed)
    for folder in (CHAT, DRAWING):
        shutil.rmtree(options.to / folder, ignore_errors=True)
    save_vl(options.out, options.to / CHAT)
    save_drawing(options.out, options.to / CHAT, options.to / DRAWING)
    chat, pipeline = scores.load_vl(options.to / CHAT), scores.load_drawing(options.to / DRAWING)
    manifest = {
        "seed": options.seed,
        "python": platform.python_version(),
        "versions": {
            name: version(name) for name in ("torch", "transformers", "diffusers", "tokenizers", "numpy", "pillow")
        },
        "stages": {name: stage(options.out, name) for name in STAGES},
        "held-out seed": scores.SEED,
        "held-out scores": {
            "questions": scores.QUESTIONS,
            CHAT: scores.score_vl(chat, scores.QUESTIONS),
            "prompts": scores.PROMPTS,
            DRAWING: scores.score_drawing(pipeline, chat, prompts.split()[1], scores.PROMPTS),
            "short prompts": len(prompts.split_short()[1]),
            f"{DRAWING}, short prompts": scores.score_drawing(pipeline, chat, prompts.split_short()[1], scores.PROMPTS),
            "rules": scores.score_rules(scores.TRUE_PICTURES),
        },
        "files": {folder: digests(options.to / folder) for folder in (CHAT, DRAWING)},
    }
    (options.to / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    (options.to / "README.md").write_text(card.write(manifest))
    print(json.dumps(manifest["held-out scores"], indent=2))


if __name__ == "__main__":
    main()
