"""Stage 2, the Qwen2.5-VL: the language model learns to read the finished tower's tokens, and to be a text encoder.

The same weights serve Qwen-Image as its text encoder. The last hidden state of a small model trained on answers alone
hardly depends on the prompt; probes that must read every prompt's words and wishes from it keep it telling.

Questions about one of two things ("What colour is the star?", "Is there a red star?") stay at chance for thousands of
steps: the model must first learn to look a name up in the picture. So the states in the middle of the model are taught
what each name in a question fits, at the name itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer

from demo_app.training import loop, prompts, questions, shapes, tokenizer, tower
from demo_app.training.chats import PARTNERS, TOKENS, Chats, Writer, places

TOKENS_A_STEP, PROMPTS_A_STEP = 1800, 4  # over all processes
MIDDLE = (2, 3)  # layers whose states are taught what names fit
POOL = 10_000  # pictures whose visual tokens are made once
LOOKED_AT = 100  # pictures asked about, for the scores on the way
NAMES = (list(shapes.COLOURS), list(shapes.SHAPES), list(shapes.BACKGROUNDS))


def config(words: Qwen2Tokenizer) -> Qwen2_5_VLConfig:
    ids = words.convert_tokens_to_ids
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": -(-len(words) // 64) * 64,
            "hidden_size": tower.HIDDEN,
            "intermediate_size": 320,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": ids("<|im_end|>"),
            "pad_token_id": ids("<|endoftext|>"),
        },
        vision_config=tower.VISION,
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def make(words: Qwen2Tokenizer, out: Path) -> Qwen2_5_VLForConditionalGeneration:
    """The whole model, with the tower that stage 1 left in `out`."""
    model = Qwen2_5_VLForConditionalGeneration(config(words))
    model.model.visual.load_state_dict(torch.load(out / "tower-final.pt", weights_only=True))
    return model


def read(
    model: Qwen2_5_VLForConditionalGeneration,
    ids: torch.Tensor,
    positions: torch.Tensor | None = None,
    seen: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """The embeddings and the states after each layer, (chats, length, 128), the last one normalised; `seen` are the
    visual tokens of all pictures, in order."""
    inner = model.model
    embedded = inner.language_model.embed_tokens(ids)
    if seen is not None:
        embedded = embedded.masked_scatter((ids == model.config.image_token_id)[..., None], seen)
    states: tuple[torch.Tensor, ...] = inner.language_model(
        inputs_embeds=embedded, position_ids=positions, use_cache=False, output_hidden_states=True
    ).hidden_states
    return states


class Learner(nn.Module):
    """The model and the probes of the text encoder; the probes are thrown away afterwards."""

    def __init__(self, words: Qwen2Tokenizer, out: Path) -> None:
        super().__init__()
        self.model = make(words, out)
        self.fast = tower.FastTower(self.model.model.visual)
        self.own = nn.Linear(tower.HIDDEN, self.model.config.text_config.vocab_size)
        self.wishes = nn.Linear(tower.HIDDEN, sum(len(names) + 1 for names in NAMES))
        self.found = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(tower.HIDDEN), nn.Linear(tower.HIDDEN, 3 + 1 + len(PARTNERS))) for _ in MIDDLE
        )

    def answer_loss(self, chats: Chats, seen: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the answers, and of what the names in the questions fit."""
        states = read(self.model, chats.ids, chats.positions, seen)
        row, place, fitting, partner = chats.marks.unbind(1)
        finding = torch.zeros(())
        for layer, head in zip(MIDDLE, self.found):
            counts, partners = head(states[layer][row, place]).split([3, 1 + len(PARTNERS)], -1)
            wrong = F.cross_entropy(counts, fitting, reduction="sum")
            wrong = wrong + F.cross_entropy(partners, partner, reduction="sum")  # leaves out the UNTOLD
            finding = finding + wrong / max(1, len(row))
        hidden = states[-1]
        learn = chats.learn[:, :-1]
        scores, counts = self.model.lm_head(hidden[:, :-1][learn > 0]), learn[learn > 0]
        wrong = F.cross_entropy(scores, chats.ids[:, 1:][learn > 0], reduction="none")
        return (wrong * counts).sum() / counts.sum(), finding

    def probe_loss(self, ids: torch.Tensor, mask: torch.Tensor, wishes: torch.Tensor) -> torch.Tensor:
        """`wishes`, (prompts, length, 3): the colour, shape and background asked for by then, 0 for none."""
        hidden = read(self.model, ids)[-1][mask]
        losses = [F.cross_entropy(self.own(hidden), ids[mask])]
        parts = self.wishes(hidden).split([len(names) + 1 for names in NAMES], -1)
        losses += [F.cross_entropy(part, wishes[mask][:, i]) for i, part in enumerate(parts)]
        return sum(losses)


class Prompts:
    """Batches of the prompts to train on, with what has been asked for at each token."""

    def __init__(self, words: Qwen2Tokenizer) -> None:
        self.words, self.trained = words, prompts.split()[0]
        self.names = [
            {
                token: i + 1
                for i, name in enumerate(names)
                for form in (f" {name}", name, name.title())
                for token in words(form).input_ids
                if len(words(form).input_ids) == 1
            }
            for names in NAMES
        ]

    def batch(self, rng: np.random.Generator, size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        texts = [self.trained[i].text for i in rng.integers(len(self.trained), size=size)]
        made = self.words([prompts.TEMPLATE.format(text) for text in texts], padding=True, return_tensors="pt")
        ids, mask = made.input_ids, made.attention_mask.bool()
        mask[:, : prompts.PREFIX_TOKENS] = False
        wishes = torch.zeros(*ids.shape, 3, dtype=torch.long)
        for row, numbers in enumerate(ids.tolist()):
            for kind, names in enumerate(self.names):
                now = 0
                for place, token in enumerate(numbers):
                    now = names.get(token, now) if mask[row, place] else 0
                    wishes[row, place, kind] = now
        return ids, mask, wishes


def pool(seed: int, size: int) -> list[shapes.Scene]:
    """More pairs than single things, and some scenes of prompts."""
    rng, scenes = np.random.default_rng([seed, 7]), []
    for _ in range(size):
        kind = rng.random()
        scenes.append(shapes.prompt_scene(rng) if kind < 0.1 else shapes.random_scene(rng, 2 if kind > 0.45 else 1))
    return scenes


def visual_tokens(fast: tower.FastTower, scenes: list[shapes.Scene], seed: int) -> torch.Tensor:
    """(scenes, 16, 128): what the tower sees in their worn pictures."""
    rng, seen = np.random.default_rng([seed, 8]), []
    for first in range(0, len(scenes), 64):
        drawn = [shapes.wear(shapes.draw(s, tower.SIDE, rng), rng) for s in scenes[first : first + 64]]
        seen.append(seen_by(fast, tower.patches(drawn)))
    return torch.cat(seen)


def seen_by(fast: tower.FastTower, pixels: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([fast(part) for part in pixels.split(64)])


def say(learner: Learner, words: Qwen2Tokenizer, seen: torch.Tensor, asked: list[str]) -> list[str]:
    """The model's greedy answers, one question to one picture, in one batch without a cache."""
    writer = Writer(words, [])
    shown = "<|vision_start|>" + "<|image_pad|>" * TOKENS + "<|vision_end|>"
    texts = [f"<|im_start|>user\n{shown}{text}<|im_end|>\n<|im_start|>assistant\n" for text in asked]
    chats = [words(text).input_ids for text in texts]
    ends = {words.convert_tokens_to_ids("<|im_end|>")}
    answers: list[list[int]] = [[] for _ in chats]
    open_ = list(range(len(chats)))
    for _ in range(32):
        length = max(len(chats[i]) for i in open_)
        ids = torch.zeros(len(open_), length, dtype=torch.long)
        positions = torch.zeros(3, len(open_), length, dtype=torch.long)
        for row, i in enumerate(open_):
            ids[row, : len(chats[i])] = torch.tensor(chats[i])
            positions[:, row, : len(chats[i])] = torch.from_numpy(places(chats[i], writer.image))
        hidden = read(learner.model, ids, positions, seen[open_].flatten(0, 1))[-1]
        last = hidden[torch.arange(len(open_)), [len(chats[i]) - 1 for i in open_]]
        for i, token in zip(list(open_), learner.model.lm_head(last).argmax(-1).tolist()):
            if token in ends:
                open_.remove(i)
            else:
                answers[i].append(token)
                chats[i].append(token)
        if not open_:
            break
    return [words.decode(answer) for answer in answers]


def exact(learner: Learner, words: Qwen2Tokenizer, seed: int, pictures: int) -> str:
    """Share of exact answers by kind, one question of each kind to each of some fresh pictures."""
    rng = np.random.default_rng([seed, 10**9])
    scenes, pixels = tower.batch(rng, pictures, 0.0, 0.5)
    seen, parts, all_right = seen_by(learner.fast, pixels), [], 0
    for kind in questions.KINDS:
        asked = [questions.ask(scene, rng, kind) for scene in scenes]
        answers = say(learner, words, seen, [question for question, _ in asked])
        right = sum(answer == true for answer, (_, true) in zip(answers, asked))
        all_right += right
        parts.append(f"{kind} {100 * right / pictures:.0f}")
    return f"all {100 * all_right / pictures / len(questions.KINDS):.1f}% " + ", ".join(parts)


def main() -> None:
    options = loop.arguments(__doc__, steps=4200)
    loop.start(options.seed)
    words, (_, ranks) = tokenizer.make(), loop.share()
    learner, asked = Learner(words, options.out), Prompts(words)
    learner.model.model.visual.requires_grad_(False)
    scenes = pool(options.seed, POOL)
    visual = loop.once(options.out / "visual-tokens.pt", lambda: visual_tokens(learner.fast, scenes, options.seed))
    writer = Writer(words, scenes)
    print(
        f"vl: {sum(p.numel() for p in learner.model.parameters())} parameters, {len(scenes)} pictures seen", flush=True
    )

    def loss_of(rng: np.random.Generator, done: float) -> tuple[torch.Tensor, dict[str, float]]:
        chats = writer.batch(rng, TOKENS_A_STEP // ranks)
        seen = visual[chats.pictures].flatten(0, 1) if chats.pictures else None
        answers, finding = learner.answer_loss(chats, seen)
        probes = learner.probe_loss(*asked.batch(rng, PROMPTS_A_STEP // ranks))
        losses = {"answers": answers, "finding": finding, "probes": probes}
        return answers + 0.5 * finding + 0.2 * probes, {key: float(loss.detach()) for key, loss in losses.items()}

    plan = loop.Plan(options.steps, rate=2e-3, out=options.out, seed=options.seed, average=0.997)
    loop.train("vl", learner, loss_of, plan, lambda: exact(learner, words, options.seed, LOOKED_AT))
    loop.keep(learner.model.state_dict(), options.out / "vl-final.pt")


if __name__ == "__main__":
    main()
