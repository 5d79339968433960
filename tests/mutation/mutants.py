"""Mutants of a source file: one small change each, such as a tester who planted bugs would make.

Texts, annotations, imports, decorators and what an error says are left alone: no number depends on them.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
_ARITHMETIC: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Div(),
    ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Div(),
    ast.Mod: ast.Mult(),
    ast.Pow: ast.Mult(),
    ast.BitAnd: ast.BitOr(),
    ast.BitOr: ast.BitAnd(),
}
_PARTNERS = (
    ("min", "max"),
    ("any", "all"),
    ("floor", "ceil"),
    ("minimum", "maximum"),
    ("log1p", "log"),
    ("expm1", "exp"),
    ("ndtr", "log_ndtr"),
    ("argmin", "argmax"),
)
_FUNCTIONS = {**dict(_PARTNERS), **{other: one for one, other in _PARTNERS}}


@dataclass(frozen=True)
class Mutant:
    """A file with one change: where it is, what stood there, what stands there now, and the whole text.

    `lines` are those that a test runs which may notice: what is carried out once, at import, has an effect in all lines
    of its class, of the function whose default it is, or where its name or that of its class is mentioned.
    """

    function: str
    line: int
    lines: frozenset[int]
    before: str
    after: str
    occurrence: int
    text: str

    @property
    def name(self) -> str:
        """The change in one line, which stays the same when lines are moved."""
        which = f" ({self.occurrence})" if self.occurrence > 1 else ""
        return f"{self.function}: {self.before} -> {self.after}{which}"


def mutants(source: str) -> Iterator[Mutant]:
    """Yield all mutants of a source text, in its order."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    raw, seen, tree = source.encode(), Counter[tuple[str, str, str]](), ast.parse(source)
    at_import = _effects_of_import(tree)
    for function, node, new in _changes(tree, ""):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        before, after = " ".join(raw[begin:end].decode().split()), ast.unparse(new)
        written = after if isinstance(new, ast.stmt) else f"({after})"
        text = (raw[:begin] + written.encode() + raw[end:]).decode()
        seen[function, before, after] += 1
        lines = at_import.get(node.lineno) or _span(node)
        yield Mutant(function, node.lineno, lines, before, after, seen[function, before, after], text)


def _span(node: ast.expr | ast.stmt) -> frozenset[int]:
    return frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _effects_of_import(tree: ast.Module) -> dict[int, frozenset[int]]:
    """Return for each line that is carried out at import, and in it alone, the lines in which it has an effect."""
    found = {}

    def users(names: set[str]) -> frozenset[int]:
        return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in names)

    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            within = [one for one in statement.body if not isinstance(one, ast.FunctionDef)]
            lines = _span(statement) | users({statement.name})
            found |= {line: lines for one in within for line in _span(one)}
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
            found |= dict.fromkeys(_span(statement), users(names))
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        defaults = [*function.args.defaults, *(one for one in function.args.kw_defaults if one is not None)]
        found |= {line: _span(function) for one in defaults for line in _span(one)}
    return found


Change = tuple[str, ast.expr | ast.stmt, ast.expr | ast.stmt]


def _changes(node: ast.AST, function: str) -> Iterator[Change]:
    """Yield (function, node, what to put in its place) for the node and all below it."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}" if function else node.name
    if isinstance(node, ast.expr | ast.stmt):
        yield from ((function or "module", node, new) for new in _replacements(node))
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr):
        yield function or "module", node.test, ast.UnaryOp(ast.Not(), node.test)
    for name, value in ast.iter_fields(node):
        if name in _left_alone(node):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_text(child):
                yield from _changes(child, function)


def _left_alone(node: ast.AST) -> tuple[str, ...]:
    """Return the fields of a node that no mutant touches."""
    if isinstance(node, ast.FunctionDef):
        return ("decorator_list", "returns")
    if isinstance(node, ast.ClassDef):
        return ("decorator_list", "bases", "keywords")
    if isinstance(node, ast.Raise):
        return ("exc", "cause")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "TypeVar"):
        return ("args", "keywords")
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr):
        return ("value",)  # an alias of types
    return ("annotation", "ctx", "func") if isinstance(node, ast.AnnAssign | ast.arg) else ("annotation", "ctx")


def _is_text(node: ast.AST) -> bool:
    """Whether a node is a text, a docstring or a formatted message."""
    if isinstance(node, ast.Expr):
        node = node.value
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _replacements(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    match node:
        case ast.Compare():
            for position, operator in enumerate(node.ops):
                operators = [*node.ops]
                operators[position] = _COMPARISONS[type(operator)]
                yield _with(node, ops=operators)
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            yield _with(node, op=_ARITHMETIC[type(node.op)])
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int()):
            yield ast.Constant(node.value + 1)
        case ast.Constant(value=float()):
            yield ast.Constant(2.0 * node.value if node.value else 1.0)
        case ast.Name() if node.id in _FUNCTIONS:
            yield ast.Name(_FUNCTIONS[node.id])
        case ast.Attribute() if node.attr in _FUNCTIONS:
            yield _with(node, attr=_FUNCTIONS[node.attr])
        case ast.IfExp():
            yield node.body
            yield node.orelse
        case ast.AugAssign() | ast.Raise():
            yield ast.Pass()
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Break():
            yield ast.Pass()
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        yield _with(node, op=_ARITHMETIC[type(node.op)])


def _with(node: ast.AST, **fields: object) -> ast.expr | ast.stmt:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed  # type: ignore[return-value]
