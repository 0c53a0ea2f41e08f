"""What an expression that asks for vLLM's version, or for what a vLLM has, gives at the target."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from codemods.guards.values import THING, Value, Version
from codemods.parsed_file import FunctionNode, Import, ParsedFile, dotted
from codemods.patches import Patches
from codemods.project import Project
from codemods.uses import is_pure
from codemods.vllm_api import Api, introduced

_VERSION_TEXT = {"vllm.__version__", "vllm.version.__version__", "vllm._version.version", "vllm._version.__version__"}
_VERSION_TUPLE = {"vllm.__version_tuple__", "vllm.version.__version_tuple__", "vllm._version.version_tuple"}
_PARSERS = {
    "packaging.version.Version",
    "packaging.version.parse",
    "pkg_resources.parse_version",
    "distutils.version.LooseVersion",
    "distutils.version.StrictVersion",
}
_METADATA = {"importlib.metadata.version", "importlib_metadata.version"}
_BY_NAME = "vllm_version_is"  # what plugins call the helper, where the file that has it is not given
_CACHES = {"functools.cache", "functools.lru_cache"}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class Asking:
    """Evaluates expressions of one project at one release; None where the value is not certain."""

    def __init__(self, project: Project, api: Api) -> None:
        self.project = project
        self.api = api
        self._patches = Patches(project)
        self._running: set[ast.AST] = set()

    def decided(self, file: ParsedFile, test: ast.expr) -> bool | None:
        """Whether a test holds at the target, where its release alone tells."""
        value = self.value(file, test, {})
        return bool(value.data) if value is not None and value.told else None

    def value(self, file: ParsedFile, node: ast.expr, names: dict[str, Value | None]) -> Value | None:
        if isinstance(node, ast.Constant):
            return Value(node.value)
        if isinstance(node, ast.Name):
            return names[node.id] if node.id in names else self._name(file, node)
        if isinstance(node, ast.Attribute):
            return self._attribute(file, node, names)
        if isinstance(node, (ast.Tuple, ast.List)):
            return _gathered([self.value(file, item, names) for item in node.elts])
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = (self.value(file, side, names) for side in (node.left, node.comparators[0]))
            return _compared(left, node.ops[0], right)
        if isinstance(node, ast.BoolOp):
            return self._all_or_any(file, node, names)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            value = self.value(file, node.operand, names)
            return None if value is None else Value(not value.data, value.told)
        if isinstance(node, ast.Subscript):
            return self._subscript(file, node, names)
        if isinstance(node, (ast.GeneratorExp, ast.ListComp)):
            return self._comprehension(file, node, names)
        if isinstance(node, ast.Call):
            return self._call(file, node, names)
        return None

    # -- names -------------------------------------------------------------------------------------------------------

    def _name(self, file: ParsedFile, node: ast.Name) -> Value | None:
        bound = file.bound(node.id, node)
        if len(bound) == 1 and not isinstance(bound[0], Import):
            return self._assigned(file, node.id, bound[0])
        if bound and all(isinstance(b, Import) and getattr(b.statement, "told", False) for b in bound):
            return Value(THING, told=True)
        return self._imported(self.project.meaning(file, node))

    def _assigned(self, file: ParsedFile, name: str, binding: ast.AST | Import) -> Value | None:
        """The value of a name that is assigned once, where its scope begins, and never through `global`."""
        statement = file.parents.get(binding) if isinstance(binding, ast.Name) else None
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
            return None
        if isinstance(statement, ast.Assign) and (len(statement.targets) != 1 or statement.targets[0] is not binding):
            return None
        if not isinstance(file.parents[statement], (ast.Module, *FunctionNode)) or statement in self._running:
            return None
        if any(name in getattr(n, "names", ()) for n in [*file.nodes[ast.Global], *file.nodes[ast.Nonlocal]]):
            return None
        self._running.add(statement)
        value = self.value(file, statement.value, {})
        self._running.discard(statement)
        told = getattr(statement, "told", False)
        return value if value is None else Value(value.data, value.told or told)

    def _imported(self, meaning: str | None) -> Value | None:
        """What a dotted name stands for: vLLM's own version, or a constant of another file of the project."""
        if meaning in _VERSION_TEXT:
            return Value(self.api.version, told=True)
        if meaning in _VERSION_TUPLE:
            return Value(tuple(map(int, self.api.version.split("."))), told=True)
        module, _, name = (meaning or "").rpartition(".")
        home = self.project.by_module.get(module)
        found = home._scopes.get(home.tree, {}).get(name, []) if home is not None else []
        return self._assigned(home, name, found[0]) if home is not None and len(found) == 1 else None

    def _attribute(self, file: ParsedFile, node: ast.Attribute, names: dict[str, Value | None]) -> Value | None:
        found = self._imported(self.project.meaning(file, node))
        if found is not None:
            return found
        value = self.value(file, node.value, names)
        if value is None or not isinstance(value.data, Version):
            return None
        release = (*value.data.release, 0, 0, 0)
        parts = {
            "release": value.data.release,
            "major": release[0],
            "minor": release[1],
            "micro": release[2],
            "base_version": ".".join(map(str, value.data.release)),
        }
        return Value(parts[node.attr], value.told) if node.attr in parts else None

    # -- compound expressions ----------------------------------------------------------------------------------------

    def _all_or_any(self, file: ParsedFile, node: ast.BoolOp, names: dict[str, Value | None]) -> Value | None:
        """`and` and `or`. One operand may decide alone, if those ahead of it do nothing but answer."""
        decisive = isinstance(node.op, ast.Or)
        values = [self.value(file, operand, names) for operand in node.values]
        for operand, value in zip(node.values, values):
            if value is not None and value.told and bool(value.data) is decisive:
                return Value(decisive, told=True)
            if value is None and not answers_only(operand):
                return None
        if any(value is None for value in values):
            return None
        return Value(not decisive, all(value is not None and value.told for value in values))

    def _subscript(self, file: ParsedFile, node: ast.Subscript, names: dict[str, Value | None]) -> Value | None:
        value = self.value(file, node.value, names)
        if value is None or not isinstance(value.data, (str, tuple)):
            return None
        try:
            index = _literal_index(node.slice)
            return Value(value.data[index], value.told)
        except (ValueError, IndexError):
            return None

    def _comprehension(
        self, file: ParsedFile, node: ast.GeneratorExp | ast.ListComp, names: dict[str, Value | None]
    ) -> Value | None:
        if len(node.generators) != 1 or node.generators[0].ifs or not isinstance(node.generators[0].target, ast.Name):
            return None
        over = self.value(file, node.generators[0].iter, names)
        if over is None or not isinstance(over.data, tuple):
            return None
        name = node.generators[0].target.id
        return _gathered([self.value(file, node.elt, {**names, name: Value(x, over.told)}) for x in over.data])

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, file: ParsedFile, call: ast.Call, names: dict[str, Value | None]) -> Value | None:
        meaning = self.project.meaning(file, call.func) or ""
        arguments = call.args
        if any(isinstance(a, ast.Starred) for a in arguments):
            return None
        builtin = call.func.id if isinstance(call.func, ast.Name) and not file.bound(call.func.id, call) else ""
        if builtin in ("hasattr", "getattr") and len(arguments) >= 2:
            return self._has(file, builtin, call)
        if meaning == "importlib.util.find_spec" and len(arguments) == 1:
            return self._spec(arguments[0])
        values = [self.value(file, argument, names) for argument in arguments]
        first = values[0] if values else None
        if meaning in _PARSERS and len(values) == 1 and not call.keywords:
            return _parsed(first)
        if meaning in _METADATA and first is not None:
            return Value(self.api.version, told=True) if first.data == "vllm" else None
        if builtin in ("int", "str", "bool", "tuple", "list", "map") and not call.keywords:
            return _built(builtin, values, call)
        if isinstance(call.func, ast.Attribute) and not call.keywords:
            owner = self.value(file, call.func.value, names)
            if owner is not None and isinstance(owner.data, str):
                return _text_method(owner, call.func.attr, values)
        return self._helper(file, call, meaning, values)

    def _has(self, file: ParsedFile, builtin: str, call: ast.Call) -> Value | None:
        """`hasattr(module, "name")` of a module or class of vLLM's; `getattr(vllm, "__version__", ...)`."""
        owner, name = self.project.meaning(file, call.args[0]) or "", call.args[1]
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            return None
        if builtin == "getattr":
            return self._imported(f"{owner}.{name.value}") if owner.partition(".")[0] == "vllm" else None
        there = self.has_attribute(owner, name.value)
        if there is False and (
            introduced(owner, name.value) is None or self._is_set(file, call, f"{owner}.{name.value}")
        ):
            return None  # a mark that a plugin leaves there asks what ran before, not which vLLM runs
        return None if there is None else Value(there, told=True)

    def has_attribute(self, owner: str, name: str) -> bool | None:
        """Whether a module or a class of vLLM's has an attribute at the target."""
        if owner.partition(".")[0] != "vllm" or owner in self.project.by_module:
            return None
        if self.api.has_module(owner):
            there = self.api.has(owner, name)
            submodule = there and name not in (self.api.names(owner) or {})
            return None if submodule else there  # a submodule is an attribute only once something imported it
        members = self.api.members(owner)
        return True if name in members else None

    def _is_set(self, file: ParsedFile, asked: ast.Call, target: str) -> bool:
        """Whether the project may have put a name there that vLLM has not: other than where it asked for it first."""
        guard = file.parents.get(asked)
        known = guard.body if isinstance(guard, ast.If) and guard.test is asked else []
        there = {node for statement in known for node in ast.walk(statement)}
        patches = (patch for user in self.project.files for patch in self._patches.of(user))
        return any(patch.target == target and patch.node not in there for patch in patches)

    def _spec(self, argument: ast.expr) -> Value | None:
        if not isinstance(argument, ast.Constant) or not str(argument.value).startswith("vllm."):
            return None
        return Value(THING if self.api.has_module(str(argument.value)) else None, told=True)

    def _helper(self, file: ParsedFile, call: ast.Call, meaning: str, values: list[Value | None]) -> Value | None:
        """A plugin's own function that compares vLLM's version with its argument."""
        module, _, name = meaning.rpartition(".")
        home = self.project.by_module.get(module)
        if home is None:
            asked = _parsed(values[0]) if name == _BY_NAME and len(values) == 1 and not call.keywords else None
            here = Version.of(self.api.version)
            return None if asked is None or here is None else Value(here.key == asked.data.key, told=True)
        function = home.defined(name)
        if not isinstance(function, ast.FunctionDef) or call.keywords or function in self._running:
            return None
        if any(self.project.meaning(home, _called(d)) not in _CACHES for d in function.decorator_list):
            return None
        parameters = function.args
        plain = not (parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.posonlyargs)
        if not plain or len(parameters.args) != len(values):
            return None
        self._running.add(function)
        given = {parameter.arg: value for parameter, value in zip(parameters.args, values)}
        returned, value = self._block(home, function.body, given)
        self._running.discard(function)
        return value if returned else None

    def _block(
        self, file: ParsedFile, body: list[ast.stmt], names: dict[str, Value | None]
    ) -> tuple[bool, Value | None]:
        """Whether a block returns, and what; `names` takes what it binds. Returns nothing known where it is not
        straight."""
        for statement in body:
            if isinstance(statement, ast.Return):
                return True, self.value(file, statement.value, names) if statement.value is not None else None
            if isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets):
                value = self.value(file, statement.value, names)
                names.update((t.id, value) for t in statement.targets if isinstance(t, ast.Name))
            elif isinstance(statement, ast.If):
                test = self.value(file, statement.test, names)
                if test is not None:
                    done, value = self._block(file, statement.body if test.data else statement.orelse, names)
                else:
                    done, value = self._either(file, statement, names)
                if done:
                    return True, value
            elif isinstance(statement, ast.Try):
                done, value = self._block(file, [*statement.body, *statement.orelse], names)
                if done:
                    return True, value
            elif not isinstance(statement, (ast.Import, ast.ImportFrom, ast.Expr)):
                return True, None
        return False, None

    def _either(self, file: ParsedFile, node: ast.If, names: dict[str, Value | None]) -> tuple[bool, Value | None]:
        """A test that is not about vLLM, such as a version that the environment may name: where one arm takes vLLM's
        own, that is what the function compares with."""
        arms = [dict(names), dict(names)]
        ends = [self._block(file, body, arm) for body, arm in zip((node.body, node.orelse), arms)]
        if any(done for done, _ in ends):
            return True, None
        for name in {*arms[0], *arms[1]}:
            told = [value for arm in arms if (value := arm.get(name)) is not None and value.told]
            same = arms[0].get(name) == arms[1].get(name)
            names[name] = arms[0].get(name) if same else told[0] if len(told) == 1 else None
        return False, None


def answers_only(node: ast.expr) -> bool:
    """Whether evaluating a test does nothing but answer: no calls, or questions such as `x.is_npu()`."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    questions = all(
        (dotted(c.func) or "").rpartition(".")[2].startswith(("is_", "has_")) and not c.args and not c.keywords
        for c in calls
    )
    return is_pure(node) or (questions and not any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)))


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _gathered(values: list[Value | None]) -> Value | None:
    known = [value for value in values if value is not None]
    if len(known) != len(values):
        return None
    return Value(tuple(value.data for value in known), any(value.told for value in known))


def _literal_index(node: ast.expr) -> Any:
    if not isinstance(node, ast.Slice):
        index = ast.literal_eval(node)
        if not isinstance(index, int):
            raise ValueError("no index")
        return index
    return slice(
        *(ast.literal_eval(part) if part is not None else None for part in (node.lower, node.upper, node.step))
    )


def _parsed(value: Value | None) -> Value | None:
    version = Version.of(value.data) if value is not None and isinstance(value.data, str) else None
    return None if version is None or value is None else Value(version, value.told)


def _built(name: str, values: list[Value | None], call: ast.Call) -> Value | None:
    """`int`, `str`, `tuple` of known values; `map(int, ...)`."""
    if name == "map":
        mapped = isinstance(call.args[0], ast.Name) and call.args[0].id == "int" and len(values) == 2
        items = values[1] if mapped else None
        if items is None or not isinstance(items.data, tuple) or not all(str(x).isdecimal() for x in items.data):
            return None
        return Value(tuple(int(x) for x in items.data), items.told)
    value = values[0] if len(values) == 1 else None
    if value is None:
        return None
    data = value.data
    if name == "bool":
        return Value(bool(data), value.told)
    if name == "str":
        text = ".".join(map(str, data.release)) if isinstance(data, Version) and not data.rank else data
        return Value(text, value.told) if isinstance(text, str) else None
    if name == "int":
        return Value(int(data), value.told) if isinstance(data, int) or str(data).isdecimal() else None
    return Value(tuple(data), value.told) if isinstance(data, (str, tuple)) else None


def _text_method(owner: Value, name: str, values: list[Value | None]) -> Value | None:
    known = [value.data for value in values if value is not None]
    if len(known) != len(values):
        return None
    text: str = owner.data
    if name == "startswith" and len(known) == 1:
        starts = [known[0]] if isinstance(known[0], str) else list(known[0]) if isinstance(known[0], tuple) else []
        if not starts or any(not isinstance(s, str) or _cuts(text, s) for s in starts):
            return None
        return Value(any(text.startswith(s) for s in starts), owner.told)
    if name in ("split", "strip", "partition", "rsplit", "lstrip") and all(isinstance(k, (str, int)) for k in known):
        try:
            result = getattr(text, name)(*known)
        except (TypeError, ValueError):
            return None
        return Value(tuple(result) if isinstance(result, list) else result, owner.told)
    return None


def _cuts(text: str, start: str) -> bool:
    """Whether a beginning ends inside a number of the version: "0.3" of "0.32.0" was hardly meant."""
    return text.startswith(start) and start[-1:].isdecimal() and text[len(start) : len(start) + 1].isdecimal()


def _compared(left: Value | None, op: ast.cmpop, right: Value | None) -> Value | None:
    if left is None or right is None:
        return None
    told = left.told or right.told
    a, b = left.data, right.data
    if isinstance(op, (ast.Is, ast.IsNot)):
        if a is not None and b is not None:
            return None
        return Value((a is b) is isinstance(op, ast.Is), told)
    if isinstance(op, (ast.In, ast.NotIn)):
        if not isinstance(b, tuple):
            return None
        return Value((a in b) is isinstance(op, ast.In), told)
    if type(op) not in _ORDER or a is THING or b is THING:
        return None
    compare = _ORDER[type(op)]
    if isinstance(a, Version) and isinstance(b, Version):
        return None if a.key == b.key and a.rank else Value(compare(a.key, b.key), told)
    if isinstance(op, (ast.Eq, ast.NotEq)):
        return None if isinstance(a, Version) or isinstance(b, Version) else Value(compare(a, b), told)
    if isinstance(a, str) and isinstance(b, str):  # text is ordered letter by letter, which versions are not
        versions = Version.of(a), Version.of(b)
        if versions[0] is None or versions[1] is None or compare(a, b) != compare(versions[0].key, versions[1].key):
            return None
    try:
        return Value(compare(a, b), told)
    except TypeError:
        return None
