"""The texts that an expression of the source can have, without running it. Used by lab/error_index.py.

`f"--out {root} is not empty: {fix}"` has as many texts as `fix` has. What only a running program knows becomes its name
in angle brackets (`<root>`); texts that the source holds are inserted. Followed are variables, constants, the rows of
tables, fields of dataclasses, properties, functions, and the arguments of all calls.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import chain, product
from pathlib import Path

from tfdist.strategies.options import option_text

MOST_TEXTS = 30
"""An expression with more texts than this becomes its name: it is a value rather than part of a sentence."""
DEEPEST = 8
"""Expressions that are followed from one to the next."""
BY_ARGUMENT = (
    "str", "repr", "list", "dict", "sorted", "set", "map", "filter", "reversed", "dumps", "redact_command", "next",
    "iter", "join",
)  # fmt: skip
"""Functions whose argument names the value better than they do."""
LISTS = ("shortened", "listed", "last_line")
"""The same, though they return texts that could be read from the source."""
BY_OBJECT = (
    "name", "path", "value", "target", "text", "words", "sentence", "strip", "rstrip", "lower", "split", "items",
    "removeprefix", "removesuffix", "replace", "format_message",
)  # fmt: skip
"""Fields and methods that are named after their object: `host.name` is <host>."""
NUMBERS = ("len", "max", "min", "abs", "ceil", "sum", "round", "getattr")
SUGGESTION = "did you mean <name>? Choose from <names>"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Block = tuple[tuple[int, int], ...]
"""A list of statements: for each statement around it, its line and which of its lists this is."""


@dataclass(eq=False)
class Module:
    """A file; `path` is relative to the repository."""

    path: str
    tree: ast.Module

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        """Values of the module's variables."""
        found: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                rows = [row for target in node.targets for row in _unpack(target, node.value)]
                found |= {name: value for row in rows for name, value in row.items()}
            elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
                found[node.target.id] = node.value
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Module and name of everything that is imported by name."""
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.ImportFrom))
        return {each.asname or each.name: (node.module or "", each.name) for node in nodes for each in node.names}


@dataclass(frozen=True, eq=False)
class Scope:
    """Where an expression is evaluated."""

    module: Module
    function: Function | None = None
    owner: str = ""
    """The class around the function."""
    bound: Mapping[str, "Value | None"] = field(default_factory=dict)
    """Variables that hold this expression; None: only a running program knows."""

    @property
    def parameters(self) -> list[str]:
        """Names of the function's parameters, without self."""
        return [each.arg for each in self.arguments if each.arg not in ("self", "cls")]

    @property
    def arguments(self) -> list[ast.arg]:
        """The function's parameters."""
        if self.function is None:
            return []
        return [*self.function.args.posonlyargs, *self.function.args.args, *self.function.args.kwonlyargs]

    @property
    def returns(self) -> "list[Value]":
        """What the function returns."""
        nodes = ast.walk(self.function) if self.function else ()
        return [(each.value, self) for each in nodes if isinstance(each, ast.Return) and each.value]


Value = tuple[ast.expr, Scope]
VariableValues = dict[str, Value | None]
"""What some variables hold together."""


@dataclass(frozen=True, eq=False)
class Call:
    """A call, and where it is."""

    node: ast.Call
    scope: Scope

    def argument(self, at: int, name: str) -> Value | None:
        """The argument at this position or of this name; None if it is not given, or not known."""
        before = self.node.args[: at + 1]
        if len(before) > at and not any(isinstance(each, ast.Starred) for each in before):
            return before[at], self.scope
        return next(((each.value, self.scope) for each in self.node.keywords if each.arg == name), None)


def callee(node: ast.expr) -> str:
    """The name of the function that is called, without its module or object; empty for anything else."""
    return getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""


class Code:
    """All modules of some packages."""

    def __init__(self, root: Path, packages: Iterable[str]) -> None:
        self.calls: list[Call] = []
        self.modules: dict[str, Module] = {}
        """The files, by dotted name."""
        self.functions: dict[str, list[Scope]] = {}
        """Functions and methods, by name."""
        self._calls: dict[str, list[Call]] = {}
        self._classes: dict[str, ast.ClassDef] = {}
        for path in sorted(path for package in packages for path in (root / package).rglob("*.py")):
            module = Module(str(path.relative_to(root)), ast.parse(path.read_bytes()))
            self.modules[module.path.removesuffix(".py").replace("/", ".")] = module
            self._visit(module.tree, Scope(module))
        for call in self.calls:
            self._calls.setdefault(callee(call.node), []).append(call)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, Function):
            scope = Scope(scope.module, node, scope.owner)
            self.functions.setdefault(node.name, []).append(scope)
        elif isinstance(node, ast.ClassDef):
            self._classes[node.name] = node
            scope = Scope(scope.module, owner=node.name)
        elif isinstance(node, ast.Call):
            self.calls.append(Call(node, scope))
        for child in ast.iter_child_nodes(node):
            self._visit(child, scope)

    def texts(self, value: Value) -> list[str]:
        """All texts of an expression, each once, with single spaces."""
        return list(dict.fromkeys(" ".join(text.split()) for text in _Evaluator(self).texts(value)))

    def fields(self, name: str) -> list[str]:
        """The fields of a dataclass or NamedTuple, in the order of its arguments; empty for other classes."""
        if name not in self._classes:
            return []
        node = self._classes[name]
        inherited = chain.from_iterable(self.fields(base.id) for base in node.bases if isinstance(base, ast.Name))
        annotated = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
        return [*inherited, *(target.id for target in annotated if isinstance(target, ast.Name))]

    def objects_of(self, name: str) -> list[Value]:
        """The calls that make objects of this class."""
        return [(call.node, call.scope) for call in self._calls.get(name, [])] if name in self._classes else []

    def member(self, name: str, member: str) -> ast.expr | None:
        """The value of an enumeration's member."""
        body = self._classes[name].body if name in self._classes else []
        assigned = (each for each in body if isinstance(each, ast.Assign))
        return next((each.value for each in assigned if getattr(each.targets[0], "id", "") == member), None)

    def calls_of(self, scope: Scope) -> list[Call]:
        """The calls of a function."""
        calls = self._calls.get(scope.function.name, []) if scope.function else []
        found = ((call, self.function(callee(call.node), call.scope.module)) for call in calls)
        return [call for call, function in found if function and function.function is scope.function]

    def function(self, name: str, module: Module) -> Scope | None:
        """The function of this name: the module's, the one that it imports, or the only one."""
        found = self.functions.get(name, [])
        origin = self.modules.get(module.imports.get(name, ("", ""))[0].removeprefix("tfdist."))
        chosen = [each for at in (module, origin) for each in found if each.module is at]
        return next(iter(chosen or (found if len(found) == 1 else [])), None)

    def constant(self, name: str, module: Module) -> Value | None:
        """The value of a module's variable, or of one that it imports."""
        while name not in module.constants:
            path, name = module.imports.get(name, ("", ""))
            if path.removeprefix("tfdist.") not in self.modules:
                return None
            module = self.modules[path.removeprefix("tfdist.")]
        return module.constants[name], Scope(module)


class _Evaluator:
    """Evaluates one expression."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._reading: list[int] = []
        """Expressions whose texts are being read."""
        self._following: list[int] = []
        """Expressions that are being followed."""

    def texts(self, value: Value) -> list[str]:
        """The texts; of several variables of a function only the values that they have together."""
        node, scope = value
        rows = self._rows(node, scope)
        return list(dict.fromkeys(text for row in rows for text in self._message(node, replace(scope, bound=row))))

    def _message(self, node: ast.expr, scope: Scope) -> list[str]:
        """The texts of a message; its first value stays a name if the caller of the function passes it."""
        if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.FormattedValue):
            first = node.values[0].value
            rest = ast.JoinedStr(node.values[1:])
            passed = isinstance(first, ast.Name) and first.id in scope.parameters and first.id not in scope.bound
            if passed and any(map(_is_words, texts := self._parts(rest, scope))):
                return [f"<{_name(first)}>{text}" for text in texts]
        return self._parts(node, scope)

    def _parts(self, node: ast.expr, scope: Scope) -> list[str]:
        match node:
            case ast.Constant(value):
                return ["" if value is None else str(value)]
            case ast.JoinedStr(values):
                return ["".join(each) for each in product(*(self._parts(each, scope) for each in values))]
            case ast.FormattedValue(inner, conversion, form):
                quote = "'" if conversion == ord("r") else ""
                return [f"{quote}{_formatted(text, form)}{quote}" for text in self._inserted(inner, scope)]
            case ast.BinOp(left, ast.Add(), right):
                return [a + b for a in self._parts(left, scope) for b in self._parts(right, scope)]
            case ast.IfExp(_, body, otherwise):
                return [*self._parts(body, scope), *self._parts(otherwise, scope)]
            case ast.BoolOp(values=values):
                return [text for each in values for text in self._parts(each, scope)]
        return self._inserted(node, scope)

    def _inserted(self, node: ast.expr, scope: Scope) -> list[str]:
        """The texts of a part of a message if they are words; else its name."""
        name = [f"<{_name(node)}>"]
        if (known := self._known(node, scope)) is not None:
            return known
        is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
        if is_sum or isinstance(node, ast.JoinedStr | ast.IfExp | ast.BoolOp):
            texts = self._parts(node, scope)
        elif id(node) in self._reading or len(self._reading) >= DEEPEST:
            return name
        else:
            self._reading.append(id(node))
            texts = [text for each in self._values(node, scope) if each[0] is not node for text in self.texts(each)]
            self._reading.pop()
        texts = [text for text in dict.fromkeys(texts) if text] or texts[:1]
        return texts if len(texts) <= MOST_TEXTS and any(map(_is_words, texts)) else name

    def _known(self, node: ast.expr, scope: Scope) -> list[str] | None:
        """What constants, options, numbers, lists and suggestions become; None for other expressions."""
        match node:
            case ast.Constant(value):
                return [str(value)]
            case ast.IfExp(_, ast.Constant(str(body)), ast.Constant(str(other))) if not _is_words(body + other):
                return [other or body]
            case ast.Name(name) if name.strip("_").isupper() and name not in scope.bound:
                found = self._code.constant(name, scope.module)
                return [str(found[0].value)] if found and isinstance(found[0], ast.Constant) else None
            case ast.Attribute(ast.Name(owner), member) if value := self._code.member(owner, member):
                return self._parts(value, scope)
            case ast.Subscript(ast.Name("words") | ast.Attribute(_, "words"), ast.Constant(str(key))):
                return [option_text(key, "<value>")]
            case ast.Subscript(ast.Name("words") | ast.Attribute(_, "words"), ast.Name() | ast.Attribute()):
                return ["--<option> <value>"]
            case ast.Call(ast.Attribute(separator, "join"), [ast.List(parts) | ast.Tuple(parts)]):
                (between,) = self._parts(separator, scope)
                names = [[f"<{_name(each)}>"] if isinstance(each, ast.Starred) else None for each in parts]
                found = [name or self._parts(each, scope) for name, each in zip(names, parts, strict=True)]
                return [between.join(each) for each in product(*found)]
            case ast.Call(ast.Attribute(template, "format")):
                texts = self._inserted(template, scope)
                return [
                    re.sub(r"(?<!\{)\{(\w+)\}(?!\})", r"<\1>", text).replace("{{", "{").replace("}}", "}")
                    for text in texts
                ]
            case ast.Call(_, [ast.Constant(str(name)), *_]) if callee(node) in ("option_text", "_written"):
                return [option_text(name, "<value>")]
            case ast.Call(_, [_, noun]) if callee(node) == "counted":
                return [f"<number> {text}s" for text in self._parts(noun, scope)]
            case ast.Call(_, [argument, *_]) if callee(node) in LISTS:
                return [f"<{_name(argument)}>"]
            case ast.Call():
                return {
                    "option_text": ["--<option> <value>"],
                    "_written": ["--<option> <value>"],
                    "set_by": ["--<option> <value>"],
                    "did_you_mean": [SUGGESTION],
                    "fix_of_choice": [SUGGESTION],
                    "sources": [""],
                    "endpoint": ["<address>"],
                    "place": [" on <host>"],
                    "subject": ["<task> is"],
                    "exception": ["<error>"],
                }.get(callee(node))
        return None

    def _values(self, node: ast.expr, scope: Scope) -> list[Value]:
        """The expressions that an expression stands for; itself if nothing is known."""
        known = isinstance(node, ast.Call) and self._known(node, scope) is not None
        if known or len(self._following) >= DEEPEST or id(node) in self._following:
            return [(node, scope)]
        self._following.append(id(node))
        found = list(self._follow(node, scope))
        self._following.pop()
        return found or [(node, scope)]

    def _follow(self, node: ast.expr, scope: Scope) -> Iterator[Value]:
        match node:
            case ast.Name():
                yield from self._of_name(node, scope)
            case ast.Attribute(owner, name):
                found = list(self._of_field(owner, name, scope))
                method = None if found else self._code.function(name, scope.module)
                is_property = (
                    method
                    and method.function
                    and any("property" in ast.unparse(each) for each in method.function.decorator_list)
                )
                yield from method.returns if method and is_property else found
            case ast.Subscript(owner, key):
                yield from (each for base in self._values(owner, scope) for each in _items(base, key))
            case ast.Call(ast.Attribute(owner, "get"), [key, *default]):
                found = [each for base in self._values(owner, scope) for each in _items(base, key)]
                yield from (*found, *((each, scope) for each in default if found))
            case ast.Call():
                function = self._code.function(callee(node), scope.module)
                if function:
                    given = {name: Call(node, scope).argument(at, name) for at, name in enumerate(function.parameters)}
                    yield from replace(function, bound={name: each for name, each in given.items() if each}).returns
            case ast.IfExp(_, first, second):
                yield from (*self._values(first, scope), *self._values(second, scope))
            case ast.BoolOp(values=operands):
                yield from (each for operand in operands for each in self._values(operand, scope))

    def _of_field(self, owner: ast.expr, name: str, scope: Scope) -> Iterator[Value]:
        for base, of_base in self._values(owner, scope):
            fields = self._code.fields(callee(base))
            if (
                isinstance(base, ast.Call)
                and name in fields
                and (value := Call(base, of_base).argument(fields.index(name), name))
            ):
                yield value

    def _of_name(self, node: ast.Name, scope: Scope) -> list[Value]:
        if node.id in scope.bound:
            value = scope.bound[node.id]
            return [] if value is None or value[0] is node or id(value[0]) in self._reading else self._values(*value)
        rows = self._rows_at({node.id}, node, scope)
        if any(node.id in row for row in rows):
            return [value for row in rows if (value := row.get(node.id))]
        if node.id == "self":
            return self._code.objects_of(scope.owner)
        if node.id in scope.parameters:
            return self._of_parameter(node.id, scope)
        value = self._code.constant(node.id, scope.module)
        return [value] if value else []

    def _of_parameter(self, name: str, scope: Scope) -> list[Value]:
        """What a parameter holds: the objects of its class, or what all calls pass."""
        annotation = next(each.annotation for each in scope.arguments if each.arg == name)
        kinds = {each.id for each in (ast.walk(annotation) if annotation else ()) if isinstance(each, ast.Name)}
        if objects := [value for kind in sorted(kinds) for value in self._code.objects_of(kind)]:
            return objects
        found = [call.argument(scope.parameters.index(name), name) for call in self._code.calls_of(scope)]
        return [value for value in found if value]

    def _rows(self, node: ast.expr, scope: Scope) -> list[VariableValues]:
        """What the variables of an expression hold together, with what is known of them already."""
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        rows = self._rows_at(names, node, scope)
        for name in sorted(names & {*scope.parameters} - scope.bound.keys()):
            fields = {
                each.attr
                for each in ast.walk(node)
                if isinstance(each, ast.Attribute) and getattr(each.value, "id", "") == name
            }
            objects = self._of_parameter(name, scope) if fields else []
            if any(_holds_words(self._code, each, fields) for each in objects):
                rows = [{**row, name: each} for row in rows for each in objects]
        return [{**scope.bound, **row} for row in rows]

    def _rows_at(self, names: set[str], node: ast.expr, scope: Scope) -> list[VariableValues]:
        """What these local variables can hold at this line: for each block that sets some of them, what they hold then."""
        names = names - scope.bound.keys()
        if scope.function is None or not names:
            return [{}]
        reaching = _reaching(names, scope.function, getattr(node, "lineno", 0))
        rows: list[VariableValues] = []
        for block in dict.fromkeys(each.block for found in reaching.values() for each in found):
            chosen = []
            for found in reaching.values():
                inside = [each for each in found if each.block == block]
                around = [each for each in found if block[: len(each.block)] == each.block]
                chosen.append(inside or around[:1] or found)
            for bindings in product(*chosen):
                parts = [self._alternatives(each, scope, names) for each in dict.fromkeys(bindings)]
                rows += [dict(chain.from_iterable(row.items() for row in part)) for part in product(*parts)]
        return rows or [{}]

    def _alternatives(self, binding: "_Binding", scope: Scope, names: set[str]) -> list[VariableValues]:
        """What an assignment or a loop sets its variables to: a row for each element or branch."""
        values: list[Value] = [(binding.value, scope)] if binding.value is not None else []
        if binding.loop:
            values = [each for value in values for base in self._values(*value) for each in self._elements(base)]
        elif not isinstance(binding.target, ast.Name):
            values = [each for value in values for each in self._values(*value)]
        unpacked = [(row, of_value) for value, of_value in values for row in _unpack(binding.target, value)]
        rows: list[VariableValues] = [
            {name: (part, of_value) for name, part in row.items() if name in names} for row, of_value in unpacked
        ]
        return [row for row in rows if row] or [dict.fromkeys(binding.names & names)]

    def _elements(self, value: Value) -> Iterator[Value]:
        """The elements of what is written out; of a dictionary's items(), its pairs."""
        node, scope = value
        match node:
            case ast.Tuple(parts) | ast.List(parts) | ast.Set(parts):
                for each in parts:
                    if isinstance(each, ast.Starred):
                        yield from (part for inner in self._values(each.value, scope) for part in self._elements(inner))
                    else:
                        yield each, scope
            case ast.Call(ast.Attribute(owner, "items"), []):
                for base, of_base in self._values(owner, scope):
                    if isinstance(base, ast.Dict):
                        for key, item in zip(base.keys, base.values, strict=True):
                            if key is not None:
                                yield ast.copy_location(ast.Tuple([key, item], ast.Load()), item), of_base


@dataclass(frozen=True, eq=False)
class _Binding:
    """A statement that sets variables."""

    target: ast.expr
    value: ast.expr | None
    """None: only a running program knows."""
    block: Block
    line: int
    loop: bool = False

    @property
    def names(self) -> set[str]:
        return {each.id for each in ast.walk(self.target) if isinstance(each, ast.Name)}


def _reaching(names: set[str], function: Function, line: int) -> dict[str, list[_Binding]]:
    """The bindings of each name that can have been the last one at a line, the latest first."""
    within = [block for block, each in _statements(function) if each.lineno <= line <= (each.end_lineno or 0)]
    here = max(within, key=len, default=())
    found: dict[str, list[_Binding]] = {}
    for binding in reversed(_bindings(function)):
        for name in sorted(names & binding.names):
            later = found.setdefault(name, [])
            overridden = any(here[: len(each.block)] == each.block for each in later)
            if binding.line < line and not overridden and not _exclude(binding.block, here):
                later.append(binding)
    return {name: bindings for name, bindings in found.items() if bindings}


@cache
def _bindings(function: Function) -> list[_Binding]:
    return sorted(_bound_in(function), key=lambda each: each.line)


def _bound_in(function: Function) -> Iterator[_Binding]:
    for block, statement in _statements(function):
        line = statement.lineno
        match statement:
            case ast.Assign(targets, value):
                yield from (_Binding(target, value, block, line) for target in targets)
            case ast.AnnAssign(target, _, value) if value is not None:
                yield _Binding(target, value, block, line)
            case ast.AugAssign(ast.Name(name) as target, operator, value):
                before = ast.copy_location(ast.Name(name), target)
                yield _Binding(target, ast.copy_location(ast.BinOp(before, operator, value), value), block, line)
            case ast.For(target, iterable):
                yield _Binding(target, iterable, (*block, (line, 0)), line, loop=True)
            case ast.With(items):
                yield from (_Binding(each.optional_vars, None, block, line) for each in items if each.optional_vars)
            case ast.Try(handlers=handlers):
                for each in handlers:
                    if each.name:
                        yield _Binding(ast.Name(each.name), None, (*block, (line, each.lineno)), each.lineno)
        for node in () if hasattr(statement, "body") else ast.walk(statement):
            if isinstance(node, ast.NamedExpr):
                yield _Binding(node.target, node.value, block, line)


@cache
def _statements(function: Function) -> list[tuple[Block, ast.stmt]]:
    """All statements of a function with the block of each; not those of functions in it."""
    return list(_statements_in(function.body, ()))


def _statements_in(body: Sequence[ast.stmt], block: Block) -> Iterator[tuple[Block, ast.stmt]]:
    for statement in body:
        yield block, statement
        if isinstance(statement, Function | ast.ClassDef):
            continue
        for number, name in enumerate(("body", "orelse", "finalbody")):
            yield from _statements_in(getattr(statement, name, ()), (*block, (statement.lineno, number)))
        for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            number = getattr(branch, "lineno", branch.body[0].lineno)
            yield from _statements_in(branch.body, (*block, (statement.lineno, number)))


def _exclude(one: Block, other: Block) -> bool:
    """Whether the blocks are branches of one statement, of which only one is executed."""
    first = next(((a, b) for a, b in zip(one, other, strict=False) if a != b), None)
    return first is not None and first[0][0] == first[1][0] and 2 not in (first[0][1], first[1][1])


def _unpack(target: ast.expr, value: ast.expr) -> list[dict[str, ast.expr]]:
    """What an assignment to names sets them to: a row for each branch; nothing if the value is not written out."""
    match target, value:
        case ast.Name(name), _:
            return [{name: value}]
        case ((ast.Tuple(targets) | ast.List(targets)), (ast.Tuple(values) | ast.List(values))):
            if len(targets) == len(values):
                parts = [_unpack(each, part) for each, part in zip(targets, values, strict=True)]
                return [dict(chain.from_iterable(row.items() for row in rows)) for rows in product(*parts)]
        case ((ast.Tuple() | ast.List()), ast.IfExp(_, body, otherwise)):
            return [*_unpack(target, body), *_unpack(target, otherwise)]
    return []


def _items(value: Value, key: ast.expr) -> Iterator[Value]:
    """The items of a written-out dictionary or sequence: the one with this key, or all if the key is not a constant."""
    node, scope = value
    match node:
        case ast.Dict(keys, values):
            same = [item for each, item in zip(keys, values, strict=True) if each and ast.dump(each) == ast.dump(key)]
            for item in same or values:
                yield (item.args[1] if isinstance(item, ast.Call) and callee(item) == "fromkeys" else item), scope
        case ast.Tuple(parts) | ast.List(parts) if isinstance(key, ast.Constant) and isinstance(key.value, int):
            if -len(parts) <= key.value < len(parts):
                yield parts[key.value], scope


def _holds_words(code: Code, value: Value, fields: set[str]) -> bool:
    """Whether one of these fields of an object is a text of several words."""
    node, scope = value
    known = code.fields(callee(node))
    if not isinstance(node, ast.Call):
        return False
    found = [Call(node, scope).argument(known.index(name), name) for name in fields & {*known}]
    return any(
        each is not None and _is_words(ast.unparse(each[0])) and isinstance(each[0], ast.Constant | ast.JoinedStr)
        for each in found
    )


def _is_words(text: str) -> bool:
    """Whether a text has several words of its own, besides names in angle brackets, or is an option."""
    words = re.findall(r"[\w'.=-]*[A-Za-z][\w'.=-]+", re.sub(r"<[^>]*>", "", text))
    return text.startswith("--") or len(words) > 1


def _formatted(text: str, form: ast.expr | None) -> str:
    """The text of a number in the form of an f-string; other texts as they are."""
    match form:
        case ast.JoinedStr([ast.Constant(str(specification))]) if re.fullmatch(r"[\d.]+", text):
            return format(float(text) if "." in text else int(text), specification)
    return text


def _name(node: ast.expr) -> str:
    """What a value is called in a message."""
    match node:
        case ast.Name(name):
            found = name
        case ast.Attribute(_, "strerror"):
            found = "reason"
        case ast.Attribute(owner, name) if name in BY_OBJECT and getattr(owner, "id", "") != "self":
            return _name(owner)
        case ast.Attribute(_, name):
            found = name
        case ast.Call(ast.Attribute(owner, name)) if name in BY_OBJECT:
            return _name(owner)
        case ast.Call(ast.Attribute(_, "get"), [ast.Constant(str(key)), *_]):
            found = key
        case ast.Call(_, [*_, argument]) if callee(node) in (*BY_ARGUMENT, *LISTS):
            return _name(argument)
        case ast.Call() if callee(node) in NUMBERS:
            found = "number"
        case ast.Call():
            found = callee(node)
        case ast.Subscript(_, ast.Constant(str(key))):
            found = key
        case ast.Subscript(owner) | ast.Starred(owner):
            return _name(owner)
        case ast.GeneratorExp(generators=[first, *_]) | ast.ListComp(generators=[first, *_]):
            return _name(first.iter)
        case ast.IfExp(_, inner) | ast.BoolOp(values=[inner, *_]):
            return _name(inner)
        case ast.BinOp() | ast.UnaryOp():
            found = "number"
        case _:
            found = "value"
    return found.strip("_").removesuffix("_s").replace("_", " ").lower()
