"""Errors are declared, not constructed: fields and a template in the class, and one constructor in the base."""

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from string import Formatter

import pytest

from forewarn.core.base_error import BaseError


def all_errors(root: Path) -> list[type[BaseError]]:
    """Import every module that defines an error, and return the errors."""
    for path in sorted(root.glob("src/forewarn/**/*.py")):
        if re.search(r"^class \w+\(.*(Error|Exception)", path.read_text(), re.MULTILINE):
            import_module(".".join(path.relative_to(root / "src").with_suffix("").parts).removesuffix(".__init__"))

    def below(error: type[BaseError]) -> Iterator[type[BaseError]]:
        for each in error.__subclasses__():
            yield each
            yield from below(each)

    return [error for error in dict.fromkeys(below(BaseError)) if error.__module__.startswith("forewarn.")]


def constructors(source: str) -> list[str]:
    """Return the exception classes that define a constructor, judged by the names of their bases."""
    exceptions = re.compile(r"(Error|Exception|Failed|Refused|NotFound|Unreachable)$")
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and any(exceptions.search(ast.unparse(base)) for base in node.bases)
        and any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in node.body)
    ]


OTHER_EXCEPTIONS = {
    "client/transport.py": ["RequestCancelled"],
    "core/campaign/estimate.py": ["_NeverOpen"],
    "fleet/event_loop.py": ["_ContextExited"],
    "fleet/inventory.py": ["AddressConflict"],
    "platform/limiter.py": ["SlotTimeout"],
    "testing/sandbox/channel.py": ["ChannelClosed"],
}
"""Exceptions without a message: their callers catch them all."""


def other_exceptions(source: str) -> list[str]:
    """Return the exception classes that derive only from exceptions of Python, and have no template."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.bases:
            bases = [getattr(builtins, ast.unparse(base), None) for base in node.bases]
            if all(isinstance(base, type) and issubclass(base, BaseException) for base in bases):
                found.append(node.name)
    return found


def test_errors_derive_from_the_base_of_errors(root: Path) -> None:
    package = root / "src/forewarn"
    found = {
        path.relative_to(package).as_posix(): names
        for path in sorted(package.rglob("*.py"))
        if (names := other_exceptions(path.read_text()))
    }
    assert found == OTHER_EXCEPTIONS | {"core/base_error.py": ["BaseError"]}


def test_error_without_the_base_is_found() -> None:
    assert other_exceptions("class A(ValueError): ...\nclass B(Invalid): ...\nclass C(BaseError, OSError): ...") == [
        "A"
    ]


def test_only_the_base_of_errors_has_a_constructor(root: Path) -> None:
    found = {path.relative_to(root).as_posix(): constructors(path.read_text()) for path in root.glob("src/**/*.py")}
    assert {path: names for path, names in found.items() if names} == {"src/forewarn/core/base_error.py": ["BaseError"]}


def test_every_name_in_a_template_is_a_field_or_a_property(root: Path) -> None:
    errors = all_errors(root)
    assert len(errors) > 100
    unknown = [
        f"{error.__name__}: {name}"
        for error in errors
        for _, field, _, _ in Formatter().parse(error.template)
        if field is not None
        for name in [re.split(r"[.\[]", field)[0]]
        if name not in error.fields and not hasattr(error, name)
    ]
    assert unknown == []


@pytest.mark.parametrize(
    "module",
    [
        "forewarn.api.errors",
        "forewarn.client.errors",
        "forewarn.core.errors",
        "forewarn.fleet.errors",
        "forewarn.operator.errors",
        "forewarn.settings.errors",
        "forewarn.store.port",
        "forewarn.testing.errors",
        "forewarn.testing.sandbox.errors",
    ],
)
def test_tree_in_the_docstring_is_the_tree_of_classes(module: str) -> None:
    errors = import_module(module)
    drawn = re.findall(r"(?:^|── )([A-Z]\w+)", inspect.getdoc(errors) or "", re.MULTILINE)
    classes = {
        value.__name__
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, BaseError) and value.__module__ == module
    }
    assert classes - set(drawn) == set()


def status_literals(source: str) -> list[int]:
    """Return the statuses of HTTP errors that are given as numbers, as in `status=404` and `{"status": 404}`."""
    named: list[tuple[str, ast.expr]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword):
            named.append((f"{node.arg}", node.value))
        elif isinstance(node, ast.Dict):
            names = (ast.unparse(key).strip("'") if key else "" for key in node.keys)
            named += zip(names, node.values, strict=True)
    return [
        value.value
        for name, value in named
        if name in ("status", "status_code") and isinstance(value, ast.Constant)
        if type(value.value) is int and value.value >= HTTPStatus.BAD_REQUEST
    ]


def test_statuses_of_errors_are_in_one_table(root: Path) -> None:
    package = root / "src/forewarn/operator"
    found = {path.relative_to(package).as_posix(): status_literals(path.read_text()) for path in package.rglob("*.py")}
    assert {path: statuses for path, statuses in found.items() if statuses} == {}


def test_literal_status_is_found() -> None:
    assert status_literals("f(500, limit=404, status=401, status_code=403)\n{'status': 404, 'size': 512}") == [
        404,
        401,
        403,
    ]
