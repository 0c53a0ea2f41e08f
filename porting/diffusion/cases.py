"""What is asked of the attention of a diffusion model, and how ranks may share it, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DTYPES = ("float32", "bfloat16")

HEADS = 12  # which two, three and four ranks can share


@dataclass(frozen=True)
class Way:
    """`ulysses` times `ring` ranks share a sequence: the former by its heads, the latter by passing on keys."""

    ulysses: int = 1
    ring: int = 1

    @property
    def ranks(self) -> int:
        return self.ulysses * self.ring

    @property
    def name(self) -> str:
        kinds = [f"{kind} {ranks}" for kind, ranks in (("ulysses", self.ulysses), ("ring", self.ring)) if ranks > 1]
        return " x ".join(kinds) or "one rank"

    @property
    def question(self) -> str:
        """What is asked of it, for people."""
        if self.ranks == 1:
            return "Does one rank give what fp64 attention gives?"
        kinds = {"Ulysses": self.ulysses, "a ring": self.ring}
        by = " and ".join(f"{kind} of {ranks}" for kind, ranks in kinds.items() if ranks > 1)
        return f"Do {self.ranks} ranks that share a sequence by {by} give what one gives?"


ONE_RANK = Way()
WAYS = (Way(2), Way(ring=2), Way(3), Way(ring=3), Way(4), Way(ring=4), Way(2, 2))


@dataclass(frozen=True)
class Case:
    """`tokens` of a picture and `text` tokens that every rank has, joined in front of the picture or at its rear.

    `masked` is what some keys of are left out: the tokens of the text, of the picture, or none. Tokens that the ranks
    cannot share equally are `padded` by the release's own splitting, or left uneven, which takes Ulysses as
    vllm-omni's `ulysses_mode="advanced_uaa"` has it, as do heads that they cannot share.
    """

    name: str
    tokens: int = 24
    text: int = 0
    place: Literal["front", "rear"] = "front"
    heads: int = HEADS
    masked: Literal["", "text", "picture"] = ""
    padded: bool = True

    def uneven(self, way: Way) -> bool:
        """Whether it takes Ulysses that shares unevenly."""
        return self.heads % way.ulysses != 0 or (way.ulysses > 1 and not self.padded and self.tokens % way.ranks != 0)

    def pads(self, way: Way) -> bool:
        """Whether the picture has to be longer than it is. A ring alone passes on shares of one size."""
        return self.tokens % way.ranks != 0 and (self.padded or way.ulysses == 1)


CASES = (
    Case("picture alone"),
    Case("text in front", text=7),
    Case("text at the rear", text=7, place="rear"),
    Case("masked text in front", text=7, masked="text"),
    Case("masked text at the rear", text=7, place="rear", masked="text"),
    Case("masked picture", text=7, masked="picture"),
    Case("padded length", tokens=25, text=7),
    Case("uneven length", tokens=25, text=7, place="rear", padded=False),
    Case("uneven heads", heads=5, text=7),
)
