"""Which tests ask what device the code runs on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.parsed_file import ParsedFile, self_attribute
from codemods.project import Class, Project

DEVICES = frozenset(
    {
        "npu",
        "ascend",
        "cuda",
        "nvidia",
        "amd",
        "rocm",
        "hip",
        "xpu",
        "hpu",
        "gaudi",
        "musa",
        "mlu",
        "tpu",
        "mps",
        "cpu",
        "gpu",
    }
)
_ASKS = frozenset({"device_type", "device_name", "is_out_of_tree", "get_device_type"})
_WORDS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ANYWHERE = re.compile("|".join(sorted(DEVICES)), re.IGNORECASE)


def names_device(text: str) -> bool:
    """Whether one of the words of a name is a device: `is_npu`, `HAS_CUDA`, `torch.npu`, `CudaGraph`."""
    return any(word.lower() in DEVICES for word in _WORDS.split(text))


def may_name_device(file: ParsedFile) -> bool:
    """Whether a device can be named in a file at all: a quick look."""
    return _ANYWHERE.search(file.text) is not None


def asks_device(project: Project, file: ParsedFile, test: ast.expr, follow: bool = True) -> bool:
    """Whether a test depends on the device, directly or through a name that holds such an answer."""
    for node in file.below(test):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and names_device(node.value):
            return True
        if isinstance(node, ast.Attribute) and (node.attr in _ASKS or names_device(node.attr)):
            return True
        if isinstance(node, ast.Name) and (node.id in _ASKS or names_device(node.id)):
            return True
        if follow and isinstance(node, (ast.Name, ast.Attribute)):
            if any(asks_device(project, file, value, False) for value in _held(project, file, node)):
                return True
    return False


def _held(project: Project, file: ParsedFile, node: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
    """What a flag was set to: a local or global name once, or an attribute of self."""
    if isinstance(node, ast.Name):
        for binding in file.bound(node.id, node):
            above = file.parents.get(binding) if isinstance(binding, ast.Name) else None
            if isinstance(above, ast.Assign) and binding in above.targets:
                yield above.value
    elif (name := self_attribute(node)) is not None and (cls := file.class_of(node)) is not None:
        yield from project.assigned(Class(file, cls)).get(name, ())


def imported_classes(file: ParsedFile) -> set[str]:
    """Classes that a file with a branch for a device takes from elsewhere: what they are decides whether it can run."""
    if ".forward(" not in file.text or not may_name_device(file):
        return set()
    return {i.alias for i in file.imports if i.name is not None and i.name[:1].isupper() and i.alias == i.name}
