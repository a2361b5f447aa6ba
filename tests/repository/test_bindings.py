"""No module binds a top-level name twice: of two merged modules, one would silently replace the other's name."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest


def bound_names(module: ast.Module) -> Iterator[str]:
    """Yield each top-level class, function and constant as often as it is bound.

    `_`, overloads of a function, and names bound under a condition such as TYPE_CHECKING are left out.
    """
    for node in module.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if not any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list):
                    yield node.name
            case ast.Assign(targets=targets):
                parts = (part for target in targets for part in ast.walk(target))
                yield from (part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                yield name
            case _:
                pass


def repeated_names(source: str) -> list[str]:
    """Return the names that are bound more than once."""
    return [name for name, count in Counter(bound_names(ast.parse(source))).items() if count > 1 and name != "_"]


def test_modules_bind_each_name_once(root: Path) -> None:
    repeated = {
        path.relative_to(root).as_posix(): repeated_names(path.read_text()) for path in root.glob("src/**/*.py")
    }
    assert len(repeated) > 100
    assert {path: names for path, names in repeated.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "repeated"),
    [
        ("log = 1\nclass A: ...\nlog = 1", ["log"]),
        ("def run(): ...\nrun = wrapped(run)", ["run"]),
        ("async def run(): ...\nclass run: ...", ["run"]),
        ("A, B = 1, 2\nB: int = 3", ["B"]),
        ("_ = 1\n_ = 2", []),
        ("A: int\nA = 1", []),
        ("@overload\ndef f(a): ...\n@typing.overload\ndef f(b): ...\ndef f(c): ...", []),
        ("if TYPE_CHECKING:\n    A = 1\nelse:\n    A = 2", []),
        ("A.b = 1\nA.b = 2\nC[0] = 1\nC[0] = 2", []),
    ],
)
def test_repeated_names_are_found(source: str, repeated: list[str]) -> None:
    assert repeated_names(source) == repeated
