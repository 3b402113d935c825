"""Every place where a gateway waits, found in its source: before and after each `await`, and around each
`async with`. Pure.

Owns: what a point is and its number; how a module is rewritten so that it passes them. A module's points are
numbered in the order of its text, so two readers of the same source count alike.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("gateway/log", "gateway/http", "gateway/aliases")
ELSEWHERE = (
    "announcements", "cluster", "evictor", "follow", "bulk", "bulk_run", "reader", "followers", "openapi",
    "ops", "specs", "states", "system", "children", "public_to_hash", "resolver", "transfer", "key_watch",
    "conditions", "known_identities", "matches", "several", "cold", "tls", "late_bodies", "shared_look_ups",
)  # fmt: skip
"""What no single append passes, or none over a single Redis, as scenes have it: the rig has clusters."""
NAMING = "gateway.aliases."
"""What comes behind the commit of an aggregate's first event: naming.py goes through it."""
AWAIT, ENTER = "__failpoint__", "__failpoint_around__"


@dataclass(frozen=True, slots=True)
class Point:
    """One side of one wait. `number` is its place in all of them."""

    number: int
    module: str
    function: str
    what: str
    side: str

    def __str__(self) -> str:
        return f"{self.module.removeprefix('gateway.')} {self.function}: {self.side} {self.what}"


def modules() -> dict[str, Path]:
    """By dotted name, in the order in which they are numbered."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sorted(found)
        if path.name != "__init__.py" and not {path.stem, path.parent.name} & set(ELSEWHERE)
    }


def all_points() -> list[Point]:
    points: list[Point] = []
    for name, path in modules().items():
        points += _points(name, path.read_text(), len(points))
    return points


def first_numbers() -> dict[str, int]:
    """Of each module."""
    firsts: dict[str, int] = {}
    for point in all_points():
        firsts.setdefault(point.module, point.number)
    return firsts


def rewritten(source: str, first: int) -> ast.Module:
    """The module, passing its points: AWAIT(number, awaitable) and ENTER(number, context manager) are what
    its awaits and its `async with` wait for instead."""
    tree = ast.parse(source)
    for node, number in zip(_waits(tree), _numbers(tree, first), strict=True):
        if isinstance(node, ast.Await):
            node.value = _call(AWAIT, number, node.value)
        else:
            node.context_expr = _call(ENTER, number, node.context_expr)
    return ast.fix_missing_locations(tree)


def _call(name: str, number: int, value: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), value], [])


Wait = ast.Await | ast.withitem


def _waits(tree: ast.Module) -> list[Wait]:
    found: list[Wait] = []
    for node in ast.walk(tree):
        assert not isinstance(node, ast.AsyncFor), f"line {node.lineno}: points in `async for` are missing"
        if isinstance(node, ast.Await):
            found.append(node)
        elif isinstance(node, ast.AsyncWith):
            found += node.items
    return sorted(found, key=_place)


def _place(node: Wait) -> tuple[int, int]:
    expression = node if isinstance(node, ast.Await) else node.context_expr
    return expression.lineno, expression.col_offset


def _sides(node: Wait) -> tuple[str, ...]:
    if isinstance(node, ast.Await):
        return ("before", "after")
    return ("before entering", "inside, first thing in", "inside, last thing in", "after leaving")


def _numbers(tree: ast.Module, first: int) -> Iterator[int]:
    for node in _waits(tree):
        yield first
        first += len(_sides(node))


def _points(module: str, source: str, first: int) -> Iterator[Point]:
    tree = ast.parse(source)
    functions = _functions(tree)
    for node in _waits(tree):
        what = ast.unparse(node.value if isinstance(node, ast.Await) else node.context_expr)
        for side in _sides(node):
            yield Point(first, module, functions[id(node)], what, side)
            first += 1


def _functions(tree: ast.Module) -> dict[int, str]:
    """The qualified name of the function around each node."""
    names: dict[int, str] = {}

    def go(node: ast.AST, name: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}".lstrip(".")
        names[id(node)] = name
        for child in ast.iter_child_nodes(node):
            go(child, name)

    go(tree, "")
    return names
