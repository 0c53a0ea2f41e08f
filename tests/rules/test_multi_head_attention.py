"""VA101: which calls of MultiHeadAttention are provably self-attention, and what becomes of every other use of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent, indent

import pytest

from codemods import vllm_api
from codemods.findings import FileReport, Finding, Severity
from codemods.run import Options, migrate

Port = Callable[..., tuple[str, list[Finding]]]

CLASS = """\
import torch
from torch import nn
from vllm.attention.layer import MultiHeadAttention
from vllm.model_executor.layers.linear import QKVParallelLinear
from vllm.model_executor.layers.rotary_embedding import get_rope


class Attention(nn.Module):
    def __init__(self, width, heads, prefix="", norm_layer=nn.LayerNorm, unknown=None):
        super().__init__()
        self.heads = heads
        self.dim = width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.packed = QKVParallelLinear(width, self.dim, heads)
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.q_norm = norm_layer(width)
        self.k_norm = norm_layer(width) if heads else nn.Identity()
        self.rotary = get_rope(self.dim, max_position=64, rope_parameters=None)
        self.pool = nn.AvgPool1d(2)
        self.unknown = unknown
        self.latents = nn.Parameter(torch.zeros(1, 8, width))
        self.attn = MultiHeadAttention(heads, self.dim, self.dim**-0.5)

    def forward(self, x, other=None):
"""

THREE_AXES = {
    "chunks of one projection": """
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn(q, k, v)
    """,
    "pieces of vLLM's projection": """
        qkv, _ = self.packed(x)
        q, k, v = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        return self.attn(q, k, v)
    """,
    "three projections": "return self.attn(self.q(x), self.k(x), self.v(x))",
    "normed": """
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.heads > 1:
            q, k = self.q_norm(q), self.k_norm(k)
        return self.attn(q, k, v)
    """,
    "turned, and with three axes again": """
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(batch, length, self.heads, self.dim)
        k = k.view(batch, length, self.heads, self.dim)
        q, k = self.rotary(q, k)
        return self.attn(q.flatten(2), k.flatten(2), v)
    """,
    "scaled": """
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.contiguous() * self.dim**-0.5
        return self.attn(q, k.to(q.dtype), v)
    """,
    "starred": "return self.attn(*self.qkv(x).chunk(3, dim=-1))",
    "from one input in both branches": """
        y = x if other is None else other
        return self.attn(self.q(y), self.k(y), self.v(y))
    """,
    "by a method of its own": """
        return self.attend(*self.qkv(x).chunk(3, dim=-1))

    def attend(self, q, k, v):
        return self.attn(q, k, v)
    """,
    "in turns": """
        for _ in range(3):
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            x = x + self.attn(q, k, v)
        return x
    """,
    "one input after the other": """
        return [self.attn(self.q(one), self.k(one), self.v(one)) for one in x]
    """,
    "from a packed tensor": """
        b, s, _ = x.shape
        qkv = self.qkv(x).view(b, s, 3, self.heads * self.dim).permute(2, 0, 1, 3)
        q, k, v = qkv[0], qkv[1], qkv[2]
        return self.attn(q, k, v)
    """,
    "by another name": """
        attend = self.attn
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return attend(q, k, v)
    """,
    "by forward": """
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn.forward(q, k, v)
    """,
}

FOUR_AXES = {
    "viewed": """
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, self.heads, self.dim) for t in self.qkv(x).chunk(3, dim=-1))
        return self.attn(q, k, v)
    """,
    "by keyword": """
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, self.heads, self.dim) for t in self.qkv(x).chunk(3, dim=-1))
        return self.attn(query=q, key=k, value=v)
    """,
    "unbound": """
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, self.dim).unbind(2)
        return self.attn(q, k, v)
    """,
    "indexed": """
        b, s, _ = x.shape
        qkv = self.qkv(x).reshape(b, s, 3, self.heads, self.dim)
        return self.attn(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
    """,
    "unflattened": """
        q, k, v = (t.unflatten(-1, (self.heads, self.dim)) for t in self.qkv(x).chunk(3, dim=-1))
        return self.attn(q, k, v)
    """,
    "in one branch only": """
        b, s, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        if self.heads > 1:
            q = q.view(b, s, self.heads, self.dim)
            k = k.view(b, s, self.heads, self.dim)
        return self.attn(q, k, v)
    """,
    "not known": "return self.attn(x, x, x)",
}

CROSS = {
    "another input": ("return self.attn(self.q(x), self.k(other), self.v(other))", "k and v also come from other"),
    "another input, or the same": (
        """
        y = x if other is None else other
        return self.attn(self.q(x), self.k(y), self.v(y))
        """,
        "k and v also come from other",
    ),
    "learned queries": (
        """
        q = self.latents.expand(x.shape[0], -1, -1)
        return self.attn(q, self.k(x), self.v(x))
        """,
        "q also comes from self.latents",
    ),
    "keys of its own": ("return self.attn(self.q(x), self.memory, self.memory)", "come from self.memory"),
    "more keys": (
        """
        y = torch.cat([x, self.latents], dim=1)
        return self.attn(self.q(x), self.k(y), self.v(y))
        """,
        "come from self.latents",
    ),
    "the first token": ("return self.attn(self.q(x[:, :1]), self.k(x), self.v(x))", "not shown to be of one length"),
    "the mean": (
        "return self.attn(self.q(x.mean(1, keepdim=True)), self.k(x), self.v(x))",
        "not shown to be of one length",
    ),
    "pooled keys": (
        """
        y = self.pool(x)
        return self.attn(self.q(x), self.k(y), self.v(y))
        """,
        "not known what self.pool makes of it",
    ),
    "an unknown projection": ("return self.attn(self.q(x), self.unknown(x), self.v(x))", "self.unknown"),
    "another input under another name": (
        """
        attend = self.attn
        return attend(self.q(x), self.k(other), self.v(other))
        """,
        "come from other",
    ),
    "another input by forward": ("return self.attn.forward(self.q(x), self.k(other), self.v(other))", "from other"),
    "another input in a method": (
        """
        return self.attend(self.q(x), other)

    def attend(self, q, y):
        return self.attn(q, self.k(y), self.v(y))
        """,
        "come from other",
    ),
    "halves": (
        """
        first, second = x.chunk(2, dim=1)
        return self.attn(self.q(first), self.k(second), self.v(second))
        """,
        "not shown to be of one length",
    ),
    "two of several inputs": (
        "return self.attn(self.q(x[0]), self.k(x[1]), self.v(x[1]))",
        "not shown to be of one length",
    ),
    "every two of several inputs": (
        """
        out = []
        for one in x:
            for two in x:
                out.append(self.attn(self.q(one), self.k(two), self.v(two)))
        return out
        """,
        "not shown to be of one length",
    ),
    "one and the one before": (
        """
        before = self.q(x)
        for _ in range(3):
            x = self.attn(before, self.k(x), self.v(x))
            before, x = self.q(x), x[:, ::2]
        return x
        """,
        "not shown to be of one length",
    ),
    "keys mixed along the sequence": (
        """
        mixed = self.latents @ x
        return self.attn(self.q(x), self.k(mixed), self.v(mixed))
        """,
        "come from self.latents",
    ),
    "keys reduced by a projection of the sequence": (
        """
        less = self.k(x.transpose(1, 2)).transpose(1, 2)
        return self.attn(x, less, less)
        """,
        "not shown to be of one length",
    ),
    "what another object makes of it": (
        "return self.attn(self.unknown.to(x), self.unknown.to(other), self.unknown.to(other))",
        "come from other",
    ),
    "changed on the way": (
        """
        q = self.q(x)
        x = x[:, 1:]
        return self.attn(q, self.k(x), self.v(x))
        """,
        "not shown to be of one length",
    ),
}

OTHER = {
    "a mask": ("return self.attn(self.q(x), self.k(x), self.v(x), other)", "more than query, key and value"),
    "hidden arguments": ("return self.attn(*other)", "hides what it calls its attention with"),
    "never called": ("return x", "no call of self.attn was found"),
    "passed on": (
        """
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return torch.utils.checkpoint.checkpoint(self.attn, q, k, v)
        """,
        "could not be followed",
    ),
    "attributes that are gone": (
        """
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        self.attn._flash_attn_varlen_func = None
        if self.attn._flash_attn_varlen_func is None:
            return x
        return self.attn(q, k, v)
        """,
        "_flash_attn_varlen_func of its attention",
    ),
    "built in forward": (
        """
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        self.attn = MultiHeadAttention(self.heads, self.dim, 1.0)
        return self.attn(q, k, v)
        """,
        "builds its attention in forward",
    ),
}


@pytest.fixture
def port(tmp_path: Path) -> Port:
    """Ports files (by name, or one text) and gives the text of the first afterwards, and all findings."""

    def run(files: str | dict[str, str], target: str = "0.32") -> tuple[str, list[Finding]]:
        texts = {"model.py": files} if isinstance(files, str) else files
        for name, text in texts.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(dedent(text))
        reports: tuple[FileReport, ...] = migrate([tmp_path], Options(target=vllm_api.resolve(target))).files
        findings = [finding for report in reports for finding in report.findings]
        return (tmp_path / next(iter(texts))).read_text(), findings

    return run


def model(body: str) -> str:
    """The class with this body of `forward`; a body that goes on with other methods is indented as they are."""
    lines = indent(dedent(body).strip("\n").rstrip(), " " * 8) if "def " not in body else body.strip("\n").rstrip()
    return f"{CLASS}{lines}\n"


def bodies(table: dict[str, str]) -> list[object]:
    return [pytest.param(model(body), id=name) for name, body in table.items()]


def refusals(table: dict[str, tuple[str, str]]) -> list[object]:
    return [pytest.param(model(body), message, id=name) for name, (body, message) in table.items()]


class TestCall:
    @pytest.mark.parametrize("text", bodies(THREE_AXES))
    def test_of_self_attention_stays_as_it_is(self, text: str, port: Port) -> None:
        after, findings = port(text)
        assert findings == []
        assert 'self.attn = MMEncoderAttention(heads, self.dim, self.dim**-0.5, prefix=f"{prefix}.attn")' in after
        assert after.partition("def forward")[2] == text.partition("def forward")[2]

    @pytest.mark.parametrize("text", bodies(FOUR_AXES))
    def test_gives_three_axes_where_q_may_have_four(self, text: str, port: Port) -> None:
        """MultiHeadAttention gave back three axes for four; MMEncoderAttention gives back what it is given."""
        after, findings = port(text)
        assert findings == []
        assert after.count(".flatten(2)\n") == 1
        assert after.replace(".flatten(2)\n", "\n").partition("def forward")[2] == text.partition("def forward")[2]

    @pytest.mark.parametrize(("text", "message"), refusals(CROSS))
    def test_of_cross_attention_is_refused(self, text: str, message: str, port: Port) -> None:
        after, findings = port(text)
        assert after == text
        assert message in findings[0].message
        assert findings[0].severity is Severity.ERROR

    @pytest.mark.parametrize(("text", "message"), refusals(OTHER))
    def test_that_cannot_be_judged_is_refused(self, text: str, message: str, port: Port) -> None:
        after, findings = port(text)
        assert after == text
        assert any(message in finding.message for finding in findings)

    def test_from_another_class_is_refused(self, port: Port) -> None:
        text = model(THREE_AXES["three projections"]) + dedent("""

            class Outer(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = Attention(8, 2)

                def forward(self, x, y):
                    return self.inner.attn(x, y, y)
            """)
        after, findings = port(text)
        assert after == text
        assert [finding.message for finding in findings] == [
            "the attention of Attention is used from outside of the class"
        ]

    @pytest.mark.parametrize("others", ["MHA", "MultiHeadAttention"])
    def test_leaves_an_alias_to_itself_and_not_to_others(self, others: str, port: Port) -> None:
        own = model(THREE_AXES["three projections"]).replace("MultiHeadAttention(", "MHA(")
        own = own.replace("import MultiHeadAttention\n", "import MultiHeadAttention, MultiHeadAttention as MHA\n")
        cross = model("return self.attn(self.q(x), self.k(other), self.v(other))")
        cross = cross[cross.index("\n\nclass") :].replace("class Attention", "class Cross")
        after, (finding,) = port(own + cross.replace("MultiHeadAttention", others))
        assert "k and v also come from other" in finding.message
        assert after.count("self.attn = MMEncoderAttention(") == after.count(f"self.attn = {others}(") == 1
        assert "from vllm.model_executor.layers.attention import MMEncoderAttention\n" in after

    def test_in_a_subclass_of_another_file_is_refused(self, port: Port) -> None:
        files = {
            "pkg/model.py": model(THREE_AXES["three projections"]),
            "pkg/__init__.py": "",
            "pkg/cross.py": """\
                from .model import Attention


                class Cross(Attention):
                    def forward(self, x, y):
                        return self.attn(self.q(x), self.k(y), self.v(y))
                """,
        }
        after, findings = port(files)
        assert after == files["pkg/model.py"]
        assert "k and v also come from y" in findings[0].message


PASSED = """\
from torch import nn
from vllm.attention.layer import MultiHeadAttention


class Attention(nn.Module):
    def __init__(self, width, heads, *, attn_cls: "type[nn.Module] | type[MultiHeadAttention]"):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.attn = attn_cls(heads, width // heads, 1.0)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn(q, k, v)


class Layer(nn.Module):
    def __init__(self, width, attn_cls):
        super().__init__()
        self.attention = Attention(width, 2, attn_cls=attn_cls)


tower = Layer(8, MultiHeadAttention)
"""

SUBCLASS = """\
from torch import nn
from vllm.attention.layer import MultiHeadAttention


class TwoAxes(MultiHeadAttention):
    def forward(self, query, key, value):
        flat = query.dim() == 2
        if flat:
            query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        out = super().forward(query, key, value)
        return out.squeeze(0) if flat else out


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.attn = TwoAxes(heads, width // heads, 1.0)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn(q, k, v)
"""

ONE_OF_THREE = """\
from torch import nn
from vllm.attention.layer import MultiHeadAttention
from vllm.v1.attention.backend import AttentionType


class Attention(nn.Module):
    def __init__(self, width, heads, kind=AttentionType.DECODER):
        super().__init__()
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, width)
        if kind == AttentionType.ENCODER:
            self.attn = MultiHeadAttention(heads, width // heads, 1.0)

    def forward(self, x):
        return self.attn(self.q(x), self.kv(x), self.kv(x))


class Cross(Attention):
    def __init__(self, width, heads):
        super().__init__(width, heads, kind=AttentionType.ENCODER_DECODER)

    def forward(self, x, y):
        return self.attn(self.q(x), self.kv(y), self.kv(y))
"""


class TestClassAsValue:
    def test_is_followed_to_the_class_that_builds_it(self, port: Port) -> None:
        after, findings = port(PASSED)
        assert findings == []
        assert "tower = Layer(8, MMEncoderAttention)" in after
        assert 'attn_cls: "type[nn.Module] | type[MMEncoderAttention]"' in after

    def test_is_refused_where_that_class_attends_across(self, port: Port) -> None:
        text = PASSED.replace("def forward(self, x):", "def forward(self, x, y):").replace("(q, k, v)", "(q, y, y)")
        after, findings = port(text)
        assert "tower = Layer(8, MultiHeadAttention)" in after
        assert "k and v also come from y" in findings[0].message

    def test_is_refused_where_it_is_lost(self, port: Port) -> None:
        text = "from vllm.attention.layer import MultiHeadAttention\n\nTABLE = {'plain': MultiHeadAttention}\n"
        after, findings = port(text)
        assert after == text
        assert "what becomes of the class here could not be followed" in findings[0].message

    def test_goes_to_vllms_own_code_unasked(self, port: Port) -> None:
        text = dedent("""\
            from vllm.attention.layer import MultiHeadAttention
            from vllm.model_executor.models.clip import CLIPEncoder

            tower = CLIPEncoder(None, attn_cls=MultiHeadAttention)
            """)
        after, findings = port(text)
        assert findings == []
        assert "attn_cls=MMEncoderAttention" in after

    def test_is_followed_under_another_name_in_other_files(self, port: Port) -> None:
        names = "from vllm.attention.layer import MultiHeadAttention\n\nPlain = MultiHeadAttention\n"
        user = model(CROSS["another input"][0]).replace(
            "vllm.attention.layer import MultiHeadAttention", ".names import Plain"
        )
        user = user.replace("MultiHeadAttention(", "Plain(")
        after, findings = port({"pkg/names.py": names, "pkg/__init__.py": "", "pkg/user.py": user})
        assert after == names
        assert "k and v also come from other" in findings[0].message


class TestSubclass:
    def test_changes_its_base(self, port: Port) -> None:
        after, findings = port(SUBCLASS)
        assert "class TwoAxes(MMEncoderAttention):" in after
        assert "out = super().forward(query, key, value)\n" in after
        assert [finding.severity for finding in findings] == [Severity.NOTE]

    def test_is_refused_where_its_instances_attend_across(self, port: Port) -> None:
        text = SUBCLASS.replace("def forward(self, x):", "def forward(self, x, y):").replace("(q, k, v)", "(q, y, y)")
        after, findings = port(text)
        assert after == text
        assert "k and v also come from y" in findings[0].message

    def test_is_refused_where_it_attends_across_itself(self, port: Port) -> None:
        text = SUBCLASS.replace("super().forward(query, key, value)", "super().forward(query, self.key, self.key)")
        after, findings = port(text)
        assert after == text
        assert "k and v also come from self.key" in findings[0].message

    def test_of_a_holder_counts_only_if_it_holds_the_attention(self, port: Port) -> None:
        """Cross passes another member of the enum than the one for which the attention is built."""
        after, findings = port(ONE_OF_THREE)
        assert findings == []
        assert "self.attn = MMEncoderAttention(heads, width // heads, 1.0)" in after

        after, findings = port(ONE_OF_THREE.replace("kind=AttentionType.ENCODER_DECODER", "kind=AttentionType.ENCODER"))
        assert "k and v also come from y" in findings[0].message


BUILT = """\
from torch import nn
from vllm.attention.layer import MultiHeadAttention


class Attention(nn.Module):
    def __init__(self, width, config=None, prefix=""):
        super().__init__()
        self.attn = {built}

    def forward(self, x):
        x = x.flatten(2)
        return {call}
"""


class TestConstructor:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("(2, 4, 1.0)", '(2, 4, 1.0, prefix=f"{prefix}.attn")'),
            ("(2, 4, 1.0, None, prefix)", "(2, 4, 1.0, None, prefix)"),
            ("(2, 4, 1.0, None, prefix, config)", "(2, 4, 1.0, None, prefix)"),
            ("(2, 4, 1.0, prefix=prefix, multimodal_config=config)", "(2, 4, 1.0, prefix=prefix)"),
            ("(2, 4, 1.0, **config)", "(2, 4, 1.0, **config)"),
        ],
    )
    def test_takes_what_the_target_takes(self, before: str, after: str, port: Port) -> None:
        text, findings = port(BUILT.format(built=f"MultiHeadAttention{before}", call="self.attn(x, x, x)"))
        assert findings == []
        assert f"self.attn = MMEncoderAttention{after}\n" in text

    def test_keeps_the_config_where_the_target_takes_it(self, port: Port) -> None:
        built = "MultiHeadAttention(2, 4, 1.0, prefix=prefix, multimodal_config=config)"
        text, _ = port(BUILT.format(built=built, call="self.attn(x, x, x)"), target="0.14")
        assert "MMEncoderAttention(2, 4, 1.0, prefix=prefix, multimodal_config=config)" in text

    @pytest.mark.parametrize(
        ("counted", "prefix"),
        [
            ("i in range(3)", ', prefix=f"{prefix}.attn.{i}"'),
            ("i, _ in enumerate(config)", ', prefix=f"{prefix}.attn.{i}"'),
        ],
    )
    def test_counts_a_list_in_the_prefix(self, counted: str, prefix: str, port: Port) -> None:
        built = f"nn.ModuleList([MultiHeadAttention(2, 4, 1.0) for {counted}])"
        text, findings = port(BUILT.format(built=built, call="self.attn[0](x, x, x)"))
        assert findings == []
        assert f"nn.ModuleList([MMEncoderAttention(2, 4, 1.0{prefix}) for {counted}])" in text

    def test_gives_a_list_without_a_counter_no_prefix(self, port: Port) -> None:
        built = "nn.ModuleList([MultiHeadAttention(2, 4, 1.0) for _ in config])"
        text, findings = port(BUILT.format(built=built, call="self.attn[0](x, x, x)"))
        assert "nn.ModuleList([MMEncoderAttention(2, 4, 1.0) for _ in config])" in text
        assert [(f.severity, "get no prefix" in f.message) for f in findings] == [(Severity.NOTE, True)]


class TestName:
    def test_of_the_files_own_class_is_left_to_it(self, port: Port) -> None:
        text = model(THREE_AXES["starred"]).replace(
            "class Attention", "class MMEncoderAttention(nn.Module): ...\n\n\nclass Attention"
        )
        after, findings = port(text)
        assert findings == []
        assert "MMEncoderAttention as VllmMMEncoderAttention," in after
        assert "self.attn = VllmMMEncoderAttention(" in after

    def test_with_a_stand_in_stays_with_all_its_uses(self, port: Port) -> None:
        guarded = dedent("""\
            try:
                from vllm.attention.layer import MultiHeadAttention
            except ImportError:
                MultiHeadAttention = None
            """)
        text = model(THREE_AXES["starred"]).replace("from vllm.attention.layer import MultiHeadAttention\n", guarded)
        after, findings = port(text)
        assert after == text
        assert [f.severity for f in findings] == [Severity.ERROR]
        assert "MultiHeadAttention is bound in several places (lines 4, 6)" in findings[0].message

    @pytest.mark.parametrize(
        "second", ["from vllm.attention import MultiHeadAttention", "from vllm.nowhere import MultiHeadAttention"]
    )
    def test_from_one_of_two_old_places_is_as_from_one(self, second: str, port: Port) -> None:
        place = "from vllm.attention.layer import MultiHeadAttention\n"
        guarded = f"try:\n    {place}except ImportError:\n    {second}\n"
        text = model(THREE_AXES["starred"])
        after, findings = port(text.replace(place, guarded))
        assert findings == []
        assert after == port(text)[0]

    def test_that_a_guard_binds_for_the_target_is_bound_alone(self, port: Port) -> None:
        place = "from vllm.attention.layer import MultiHeadAttention\n"
        new = "from vllm.model_executor.layers.attention import MMEncoderAttention as MultiHeadAttention\n"
        text = model(THREE_AXES["starred"])
        after, findings = port(text.replace(place, f"try:\n    {place}except ImportError:\n    {new}"))
        assert findings == []
        assert after == text.replace(place, new)

    @pytest.mark.parametrize(
        "annotation", ['"MultiHeadAttention"', "'Optional[MultiHeadAttention]'", 'Optional["MultiHeadAttention"]']
    )
    def test_is_changed_within_annotations(self, annotation: str, port: Port) -> None:
        text = dedent(f"""\
            from typing import Optional
            from vllm.attention.layer import MultiHeadAttention


            def heads(attention: {annotation}) -> int:
                return attention.num_heads
            """)
        after, findings = port(text)
        assert findings == []
        assert f"attention: {annotation.replace('MultiHeadAttention', 'MMEncoderAttention')}" in after

    def test_stays_at_the_target_that_has_no_other(self, port: Port) -> None:
        text = model(THREE_AXES["starred"])
        after, findings = port(text, target="0.13")
        assert after == text
        assert [(f.severity, "stays at this target" in f.message) for f in findings] == [(Severity.NOTE, True)]
