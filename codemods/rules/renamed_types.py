"""VA603: types that vLLM renamed, where a file uses them in annotations, or to make a dictionary."""

from __future__ import annotations

import ast

from codemods import edits as E
from codemods import moved_names
from codemods.findings import Severity
from codemods.plan import FilePlan, Plan
from codemods.rule import Example, Rule

_BEFORE = """\
from torch import nn
from vllm.attention.layer import MultiHeadAttention
from vllm.multimodal.inputs import MultiModalKwargs


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(heads * head_dim, 3 * heads * head_dim)
        self.attn = MultiHeadAttention(heads, head_dim, head_dim**-0.5)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn(q, k, v)


def fields(items: MultiModalKwargs) -> list[str]:
    return sorted(items)
"""

_AFTER = """\
from torch import nn
from vllm.model_executor.layers.attention import MMEncoderAttention
from vllm.multimodal.inputs import MultiModalKwargsItems


class PatchAttention(nn.Module):
    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(heads * head_dim, 3 * heads * head_dim)
        self.attn = MMEncoderAttention(heads, head_dim, head_dim**-0.5)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.attn(q, k, v)


def fields(items: MultiModalKwargsItems) -> list[str]:
    return sorted(items)
"""

# (module, name) as it was, and as it is; each holds where the old one is gone and the new one is there
_RENAMED = {
    ("vllm.model_executor", "SamplingMetadata"): ("vllm.v1.sample.metadata", "SamplingMetadata"),
    ("vllm.model_executor.sampling_metadata", "SamplingMetadata"): ("vllm.v1.sample.metadata", "SamplingMetadata"),
    ("vllm.multimodal.inputs", "MultiModalKwargs"): ("vllm.multimodal.inputs", "MultiModalKwargsItems"),
    ("vllm.multimodal.inputs", "MultiModalInputs"): ("vllm.inputs", "MultiModalInput"),
    ("vllm.multimodal.processing.processor", "MultiModalProcessingInfo"): (
        "vllm.multimodal.processing.processor",
        "MultiModalProcessingResult",
    ),
    ("vllm.multimodal.processing", "MultiModalProcessingInfo"): (
        "vllm.multimodal.processing.processor",
        "MultiModalProcessingResult",
    ),
    ("vllm.transformers_utils.tokenizer", "AnyTokenizer"): ("vllm.tokenizers", "TokenizerLike"),
}


def earlier(module: str, name: str) -> tuple[tuple[str, str], ...]:
    """What a type, or another name, was in earlier releases: (module, name)."""
    types = tuple(old for old, new in _RENAMED.items() if new == (module, name))
    return types + moved_names.earlier(module, name)


def later(module: str, name: str) -> str:
    """What a type, or another name, is called in later releases."""
    return _RENAMED.get((module, name), moved_names.renamed(module, name))[1]


def plan(run: Plan) -> None:
    for file in run.open_files:
        for statement in file.file.nodes[ast.ImportFrom]:
            assert isinstance(statement, ast.ImportFrom)
            for alias in statement.names:
                new = _RENAMED.get((file.file.absolute(statement), alias.name))
                if new is not None and run.api.has(file.file.absolute(statement), alias.name) is False:
                    _rename(run, file, statement, alias, new)


def _rename(run: Plan, file: FilePlan, statement: ast.ImportFrom, alias: ast.alias, new: tuple[str, str]) -> None:
    module, name = new
    if not run.api.has(module, name) or alias.asname or not isinstance(file.file.parents[statement], ast.Module):
        return
    if E.RemoveImport(E.Ref.of(statement), alias.name) in file.edits:
        return
    uses = file.file.reads.get(alias.name, [])
    told = f"{module}.{name}"
    other = next((u for u in uses if not file.file.in_annotation(u) and not _is_record(run, file, u, told)), None)
    if other is not None:
        file.find(
            RULE,
            other,
            Severity.ERROR,
            f"{alias.name} is not in vLLM {run.target.version}, and is used as more than an annotation here",
            f"{module}.{name} took its place; see whether this use still means the same.",
            covers=other,
        )
        file.refused.append(E.Ref.of(alias))
        return
    edits: list[E.Edit] = [E.RemoveImport(E.Ref.of(statement), alias.name), E.AddImport(module, name)]
    file.rewrite(RULE, statement, f"{alias.name} becomes {name}", edits)
    for use in uses:
        file.rewrite(RULE, use, f"{alias.name} becomes {name}", [E.ReplaceExpression(E.Ref.of(use), name)])


def _is_record(run: Plan, file: FilePlan, use: ast.Name, new: str) -> bool:
    """Whether a use makes a dictionary with keys that the new type has as well: a TypedDict is no more than that."""
    call = file.file.parents[use]
    if not isinstance(call, ast.Call) or call.func is not use or call.args:
        return False
    typed = any(base.rpartition(".")[2] == "TypedDict" for base in run.api.ancestry(new))
    return typed and {word.arg for word in call.keywords} <= run.api.members(new)


RULE = Rule(
    code="VA603",
    name="renamed-types",
    summary="Types that vLLM renamed go by their new names where they stand in annotations or make a dictionary.",
    why=(
        "A model file that imports a type which is gone cannot be imported, even if the type only annotates. The "
        "new type took the old one's place in vLLM's own signatures. A call that makes a TypedDict is one of its keys "
        "under either name; any other use at run time is left to a person."
    ),
    follows="vLLM 0.14.0 (MultiModalKwargs, AnyTokenizer), 0.19.0 (MultiModalInputs), 0.31.0 (processing results)",
    names=frozenset(),
    plan=plan,
    examples=(Example(before=_BEFORE, after=_AFTER),),
    unported=Severity.WARNING,
)
