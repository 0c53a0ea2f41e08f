"""The memory of a tensor as far as the text shows it: in order and without gaps, or not."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

SOMEWHERE = -1  # a gap of which it is not known before which dimension it lies


@dataclass(frozen=True)
class Layout:
    """What is shown of one tensor, or (`listed`) of each tensor of a list. Nothing is shown by default.

    A gap is the dimension, counted from the front, ahead of which memory is skipped: `x[:, :n]` of a contiguous x has
    one at 1, for between its rows lies what the slice left out. `permuted` memory has no gaps, but another order.
    """

    gaps: frozenset[int] = frozenset()
    permuted: bool = False
    why: str = ""  # the view that made it so, as it is written
    contiguous: bool = False  # shown to be so
    fresh: bool = False  # made here, by something that returns new memory
    listed: bool = False
    given: frozenset[str] = frozenset()  # parameters whose own layout this is
    bases: frozenset[str] = frozenset()  # names of tensors it may share memory with
    swap: str = ""  # the exchange of dimensions that was made last: made once more, it is undone

    @property
    def strided(self) -> bool:
        """Whether it is shown that the memory can be other than contiguous."""
        return self.permuted or bool(self.gaps)

    def joined(self, other: Layout) -> Layout:
        """What holds for a value that is one of the two."""
        return Layout(
            self.gaps | other.gaps,
            self.permuted or other.permuted,
            self.why or other.why,
            self.contiguous and other.contiguous,
            self.fresh and other.fresh,
            self.listed or other.listed,
            self.given | other.given,
            self.bases | other.bases,
        )

    def view(self, **changes: object) -> Layout:
        """A view of it, with its memory in another form."""
        return replace(self, **{"contiguous": False, "swap": "", **changes})  # type: ignore[arg-type]

    def cut(self, gap: int, why: str) -> Layout:
        return self.view(gaps=self.gaps | {gap}, why=why)

    def swapped(self, swap: str, why: str) -> Layout:
        if swap and swap == self.swap and self.permuted:
            return self.view(permuted=False, why=self.why if self.gaps else "")
        return self.view(permuted=True, why=why, swap="" if self.permuted else swap)

    def without_first(self, count: int = 1) -> Layout:
        """One entry of the first dimension (or dimensions): what lay between these entries is outside."""
        gaps = frozenset(gap - count if gap > 0 else gap for gap in self.gaps if gap < 0 or gap > count)
        return replace(self, gaps=gaps, swap="")

    def blurred(self) -> Layout:
        """Other dimensions over the same memory: still gaps, but not known where."""
        return replace(self, gaps=frozenset({SOMEWHERE}) if self.gaps else self.gaps, swap="")

    def copied(self) -> Layout:
        """A copy that keeps the order of the dimensions in memory, as `clone` and `empty_like` make it."""
        return Layout(
            permuted=self.permuted,
            why=self.why if self.permuted else "",
            contiguous=self.contiguous,
            fresh=True,
            listed=self.listed,
        )


UNKNOWN = Layout()
NEW = Layout(contiguous=True, fresh=True)


def joined(layouts: Iterable[Layout]) -> Layout:
    found = list(layouts)
    result = found[0] if found else UNKNOWN
    for layout in found[1:]:
        result = result.joined(layout)
    return result


def indexed(base: Layout, index: ast.expr, why: str, is_int: Callable[[ast.expr], bool]) -> Layout:
    """`base[index]`. Where the index may pick entries by a tensor or a mask, which copies, nothing is shown."""
    items = index.elts if isinstance(index, ast.Tuple) else [index]
    first = 0
    while first < len(items) and is_int(items[first]):
        first += 1
    result = base.without_first(first).view() if first else base.view()
    kept = out = 0  # dimensions of more than one entry so far; all dimensions so far
    known = True  # whether they were counted from the front
    for item in items[first:]:
        if isinstance(item, ast.Constant) and item.value is None:
            result = (
                result.blurred() if out else result.view(gaps=frozenset(g + 1 if g > 0 else g for g in result.gaps))
            )
            out += 1
        elif isinstance(item, ast.Constant) and item.value is ...:
            kept, known = kept + 1, False
        elif isinstance(item, ast.Slice):
            if item.step is not None and not _is(item.step, 1):
                result = result.cut(SOMEWHERE, why)
            elif not _whole(item) and kept:
                result = result.cut(out if known else SOMEWHERE, why)
            kept, out = kept + 1, out + 1
        elif is_int(item):
            if kept:
                result = result.cut(out if known else SOMEWHERE, why)
        else:
            return UNKNOWN
    return result


def _whole(item: ast.Slice) -> bool:
    return item.upper is None and (item.lower is None or _is(item.lower, 0))


def _is(node: ast.expr, number: int) -> bool:
    return isinstance(node, ast.Constant) and node.value == number
