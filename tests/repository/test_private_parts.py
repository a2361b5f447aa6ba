"""The code uses no private parts of other packages, as far as that can be seen in its text."""

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

ALLOWED = {("os", "_exit")}
"""Documented despite its name."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def is_third_party(module: str) -> bool:
    """Return whether a module is neither ours nor in the standard library, whose documentation counts."""
    return module.partition(".")[0] not in {"forewarn", "_typeshed", *sys.stdlib_module_names}


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Return the names that are bound by imports from other packages, each with the module that it comes from."""
    bound = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    bound[alias.asname or alias.name.partition(".")[0]] = alias.name
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    bound[alias.asname or alias.name] = f"{module}.{alias.name}"
            case _:
                pass
    return {name: origin for name, origin in bound.items() if not origin.startswith("forewarn")}


def private_parts(source: str) -> Iterator[str]:
    """Yield the private parts of other packages that a module imports, reads, or replaces in a subclass."""
    tree = ast.parse(source)
    foreign = imported_names(tree)
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0) if is_third_party(module):
                public = getattr(import_module(module), "__all__", [alias.name for alias in names])
                hidden = [f"{module}.{alias.name}" for alias in names if alias.name not in public]
                yield from (origin for origin in hidden if not any(map(is_private, origin.split("."))))
            case _:
                pass
    for origin in foreign.values():
        if origin.partition(".")[0] not in {"_typeshed", "__future__"} and any(map(is_private, origin.split("."))):
            yield origin
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=attr) if is_private(attr):
                root = ast.unparse(value).partition(".")[0].partition("(")[0]
                if root in foreign and (root, attr) not in ALLOWED:
                    yield f"{ast.unparse(value)}.{attr}"
            case ast.ClassDef(name=name, bases=bases, body=body):
                parents = [parent for base in bases if (parent := foreign_class(base, foreign)) is not None]
                own = [member for member in members(body) if any(hasattr(parent, member) for parent in parents)]
                yield from (f"{name}.{member}" for member in own)
            case _:
                pass


def foreign_class(base: ast.expr, foreign: dict[str, str]) -> object | None:
    """Return the base class from another package, if there is one."""
    first, *rest = ast.unparse(base).partition("[")[0].split(".")
    if first not in foreign:
        return None
    found: object = resolve_name(".".join((foreign[first], *rest)))
    return found


def members(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the private names that a class defines."""
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if is_private(name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if is_private(name):
                yield name
            case _:
                pass


def test_no_private_part_of_another_package_is_used(root: Path) -> None:
    found = {
        path.relative_to(root).as_posix(): parts
        for path in sorted(root.glob("src/**/*.py"))
        if (parts := sorted(set(private_parts(path.read_text()))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("from litestar.app import _x", ["litestar.app._x"]),
        (
            "from litestar.openapi.plugins import JsonRenderPlugin, YamlRenderPlugin",
            ["litestar.openapi.plugins.JsonRenderPlugin"],
        ),
        ("from litestar._kwargs import extractors", ["litestar._kwargs.extractors"]),
        ("import litestar\nlitestar.Litestar._get_default_plugins([])", ["litestar.Litestar._get_default_plugins"]),
        ("import asyncio as aio\naio.events._set_running_loop(None)", ["aio.events._set_running_loop"]),
        (
            "from litestar.response.base import ASGIResponse as A\nclass C(A):\n    _should_set_content_length = 0",
            ["C._should_set_content_length"],
        ),
        (
            "import click\nclass C(click.Group):\n    def _main_shell_completion(self): ...",
            ["C._main_shell_completion"],
        ),
        ("import click\nclass C(click.ParamType[int]):\n    def _own(self): ...", []),
        ("from forewarn.core import text\ntext._own()", []),
        ("import os\nos._exit(0)", []),
        ("import a\na.__version__", []),
    ],
)
def test_private_parts_are_found(source: str, parts: list[str]) -> None:
    assert list(private_parts(source)) == parts
