"""Names in docstrings exist: in the module for error trees and functions, otherwise anywhere in src."""

import ast
import builtins
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

CAMEL_CASE = re.compile(r"\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b")
"""A name of two or more words."""

DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
BARE = re.compile(r"`([A-Za-z_]\w*)(?:=[^`]*|: ([A-Z]\w*))?`")
"""A name, perhaps with its value or its type: `timeout`, `timeout=None`, `caller: CallerDep`."""

TREE_NAME = re.compile(r"[├└]── ([A-Z]\w*)")
"""A class in the tree of errors at the top of a module."""

WORD = re.compile(r"\w+")

OUTSIDE_NAMES = {
    "FWN1": "first bytes of a database file",
    "FrontEnd_IN_0": "example of the protocol",
    "IaaS": "Microsoft's name of a service",
    "JetStream": "product",
    "OpenAPI": "standard",
    "SameSite": "standard",
    "OpenSSL": "library",
    "StartRequests": "field of the protocol",
    "fro": "example",
    "tzdata": "package",
    "zoneinfo.ZoneInfo": "standard library",
}
"""Names that docstrings may use although src does not define them, each with what it is."""

OTHER_MODULES_NAMES = {
    "Host": "header of HTTP",
    "NotDiscovered": "base class of a tree of its own",
    "READY": "message to systemd",
    "Scheduled": "status of an event",
    "Started": "status of an event",
    "advance": "method of the fixture forewarn",
    "canceled": "outcome of an event",
    "completed": "outcome of an event",
    "failed": "outcome of an event",
    "host1": "example",
    "latest": "version in a request of the protocol",
    "lo": "network interface",
    "nothing": "word of the scenario language",
    "notice": "field of the API",
    "resources": "field of an event",
}
"""Words that trees, and docstrings of functions, may use in modules whose code does not have them."""


class Docstring(NamedTuple):
    """The text of a docstring, whether it is a function's, and its line."""

    text: str
    line: int
    is_function: bool


class Module(NamedTuple):
    """A module's docstrings, the names in its code, and the words of its other strings."""

    path: str
    docstrings: tuple[Docstring, ...]
    names: frozenset[str]
    words: frozenset[str]


def read_module(path: Path, source: Path) -> Module:
    tree = ast.parse(path.read_text())
    functions = {
        id(node.body[0]) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    docstrings = {
        id(node.value): Docstring(node.value.value, node.lineno, id(node) in functions)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    strings = (
        node.value if isinstance(node.value, str) else node.value.decode(errors="replace")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in docstrings
    )
    relative = path.relative_to(source)
    return Module(
        relative.as_posix(),
        tuple(docstrings.values()),
        frozenset({*names_in(tree), *relative.with_suffix("").parts}),
        frozenset(word for text in strings for word in WORD.findall(text)),
    )


def names_in(tree: ast.AST) -> Iterator[str]:
    """Return every name that the code defines, imports or uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield from (*name.split("."), *(() if other is None else (other,)))
            case _:
                pass


def missing_names(modules: Iterable[Module], allowed: Collection[str] = ()) -> list[str]:
    """Return names in docstrings that no code has: `path:line: name`."""
    modules = tuple(modules)
    known = {name for module in modules for name in module.names} | {*dir(builtins), "forewarn"}
    known_anywhere = known.union(*(module.words for module in modules))
    found = []
    for module in modules:
        here = module.names | module.words | set(dir(builtins))
        for text, line, is_function in module.docstrings:
            camel_case = {name for name in CAMEL_CASE.findall(text) if name not in known}
            dotted = {name for name in DOTTED.findall(text) if not known.issuperset(name.split("."))}
            bare = {name for pair in BARE.findall(text) for name in pair if name and name not in here}
            tree = {name for name in TREE_NAME.findall(text) if name not in module.names}
            missing = tree | camel_case | dotted | (bare if is_function else bare - known_anywhere)
            found += [f"{module.path}:{line}: {name}" for name in sorted(missing.difference(allowed))]
    return found


def modules_below(source: Path) -> list[Module]:
    return [read_module(path, source) for path in sorted(source.rglob("*.py"))]


@pytest.fixture(scope="module")
def modules(root: Path) -> list[Module]:
    return modules_below(root / "src/forewarn")


def test_names_in_docstrings_exist(modules: list[Module]) -> None:
    assert missing_names(modules, {*OUTSIDE_NAMES, *OTHER_MODULES_NAMES}) == []


def test_allowed_names_are_needed(modules: list[Module]) -> None:
    assert {entry.split()[-1] for entry in missing_names(modules)} == {*OUTSIDE_NAMES, *OTHER_MODULES_NAMES}


def test_missing_names_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def keep(may): ...\n\n\nclass CallerDep: ...\n")
    (tmp_path / "errors.py").write_text(
        '"""Errors.\n\nError\n├── Refused\n└── Refusal\n"""\n\n\nclass Refused(Exception): ...\n'
    )
    (tmp_path / "planted.py").write_text(
        '"""Raises LostAnswer; see CallerDep, `other.keep` and `other.lose`."""\n'
        'KINDS = ("slow",)\n'
        '"""As `may` takes it: `says_its_end=False`."""\n'
        "def clear(check):\n"
        '    """End it unless `check` or `may` refuses; `slow` is a kind; `check: CallerDep`, `look=False`."""\n'
    )
    assert missing_names(modules_below(tmp_path)) == [
        "errors.py:1: Refusal",
        "planted.py:1: LostAnswer",
        "planted.py:1: other.lose",
        "planted.py:3: says_its_end",
        "planted.py:5: CallerDep",
        "planted.py:5: look",
        "planted.py:5: may",
    ]
