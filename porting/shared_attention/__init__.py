"""An attention of one's own that ranks share by heads (Ulysses), tried on two ranks of this machine.

It is a class `SharedAttention(heads, head_dim)` whose forward takes this rank's tokens of query, key and value, each
`(batch, tokens, heads, head_dim)`, and gives theirs back. The ranks are processes over gloo, held to what an NPU
insists on. What is asked is asked of a runner, as the levels of `porting.levels` are.
"""

from __future__ import annotations

from porting.levels import Level

SHARED = Level(
    "shared",
    "Does attention that two ranks share hold on an NPU, and give what one rank gives?",
    "porting.shared_attention.trials",
    dtypes=(),
    backends=(),
    needs_vllm=False,
    fresh=True,
)
