"""What one visitor has said and drawn. It lives on the server, so that no page can put words or files into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from demo_app.engines.interface import Message, Wish
from demo_app.pictures import Picture

MOST_TURNS, MOST_DRAWINGS = 40, 24


@dataclass
class Turn:
    """A question and what has come of its answer. It is `open` until there is no more to come, `taken` once somebody is
    at it, `ended` once the answer has come to its own end or was stopped; `problem` is why it ended too soon.
    """

    question: str
    pictures: tuple[Picture, ...] = ()
    answer: str = ""
    open: bool = True
    taken: bool = False
    ended: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Drawing:
    """A wish, one of its pictures, and the seconds that the wish took."""

    wish: Wish
    picture: Picture
    seed: int
    seconds: float


class Visitor:
    """The conversation and the drawings, newest last; `wish` is what is being drawn.

    No dataclass: Gradio would show its fields to the browser.
    """

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.drawings: list[Drawing] = []
        self.wish: Wish | None = None

    @property
    def open_turn(self) -> Turn | None:
        """The turn that waits for its answer, or is being answered."""
        return self.turns[-1] if self.turns and self.turns[-1].open else None

    def ask(self, question: str, pictures: Sequence[Picture]) -> None:
        self.turns = [*self.turns[1 - MOST_TURNS :], Turn(question, tuple(pictures))]

    def stop(self) -> bool:
        """Whoever is at the answer ends at its next word. Whether there was one to stop."""
        if not self.turns or self.turns[-1].ended:
            return False
        self.turns[-1].open, self.turns[-1].ended = False, True
        return True

    def keep(self, drawings: Sequence[Drawing]) -> None:
        self.drawings = [*self.drawings, *drawings][-MOST_DRAWINGS:]


def shown(turns: Sequence[Turn], most: int, pictures: int) -> list[Message]:
    """What an engine is shown of a conversation that ends with an open turn.

    The last `most` turns, without those that were never answered, and the last pictures, at most so many. Where all
    pictures stand further back, those of the last turn that has some move into the first turn that is shown.
    """
    *before, last = turns
    kept = [*[turn for turn in before if turn.answer][1 - most :], last] if most > 1 else [last]
    if not any(turn.pictures for turn in kept):
        seen = next((turn.pictures for turn in reversed(before) if turn.pictures), ())
        kept[0] = replace(kept[0], pictures=seen)
    messages: list[Message] = []
    for turn in reversed(kept):
        chosen = turn.pictures[-pictures:] if pictures else ()
        pictures -= len(chosen)
        if not turn.open:
            messages.append(Message("assistant", turn.answer))
        messages.append(Message("user", turn.question, chosen))
    return messages[::-1]
