"""The numbers of a case, and what right is for them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields

import torch

from porting.diffusion.cases import Case

BATCH = 2  # with a batch of one, a slice of the second dimension has no gaps
HEAD_DIM = 16


def inputs_of(case: Case, dtype: torch.dtype) -> Inputs:
    """The same numbers in every process."""
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))

    def normal(tokens: int) -> torch.Tensor:
        return torch.randn(3, BATCH, tokens, case.heads, HEAD_DIM, generator=generator).to(dtype)

    text_mask = torch.ones(BATCH, case.text, dtype=torch.bool)
    picture_mask = torch.ones(BATCH, case.tokens, dtype=torch.bool)
    if case.masked == "text":
        text_mask[0, case.text // 2 :] = False
    if case.masked == "picture":
        picture_mask[1, case.tokens // 2 :] = False
    query, key, value = normal(case.tokens)
    text_query, text_key, text_value = normal(case.text)
    return Inputs(query, key, value, text_query, text_key, text_value, picture_mask, text_mask)


@dataclass(frozen=True)
class Inputs:
    """Query, key and value of the picture and of the text, `(batch, tokens, heads, head_dim)`; masks `(batch, tokens)`,
    True for keys that are attended to.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    text_query: torch.Tensor
    text_key: torch.Tensor
    text_value: torch.Tensor
    picture_mask: torch.Tensor
    text_mask: torch.Tensor

    def to(self, device: str) -> Inputs:
        return Inputs(*(getattr(self, field.name).to(device) for field in fields(self)))

    def joined(self, place: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key, value and mask of text and picture in their order."""
        pairs = (
            (self.text_query, self.query),
            (self.text_key, self.key),
            (self.text_value, self.value),
            (self.text_mask, self.picture_mask),
        )
        query, key, value, mask = (torch.cat(pair if place == "front" else pair[::-1], dim=1) for pair in pairs)
        return query, key, value, mask


def split(output: torch.Tensor, text: int, place: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What belongs to the picture and to the text, of `(batch, tokens, ...)`."""
    tokens = output.shape[1] - text
    if place == "front":
        return output[:, text:], output[:, :text]
    return output[:, :tokens], output[:, tokens:]


def reference(case: Case, inputs: Inputs) -> torch.Tensor:
    """softmax(query key^T / sqrt(head_dim)) value in float64, text and picture joined; keys outside the mask left out.

    `(batch, tokens, heads, head_dim)`.
    """
    query, key, value, mask = inputs.joined(case.place)
    scores = torch.einsum("bqhd,bkhd->bhqk", query.double(), key.double()) * HEAD_DIM**-0.5
    scores = scores.masked_fill(~mask[:, None, None, :], -torch.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim=-1), value.double())
