"""The reference of the testing package lists exactly its public names with their parameters."""

import inspect
import re
from pathlib import Path
from types import FunctionType

import pytest

import forewarn.testing as testing
from forewarn.testing import plugin

PAGE = (Path(__file__).parents[2] / "docs/reference/testing.md").read_text(encoding="utf-8")
NAME = re.compile(r"`(\w+)(?:\(([\w, ]*)\))?`")


def chapter(title: str) -> str:
    """Return the text below a heading."""
    found = re.search(rf"^## `?{re.escape(title)}`?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def named(title: str) -> dict[str, str | None]:
    """Return the names in the first columns of a chapter's tables, with their parameters."""
    first_columns = re.findall(r"^\| (`.+?) \|", chapter(title), re.MULTILINE)
    return {
        name: parameters if "(" in cell else None for cell in first_columns for name, parameters in NAME.findall(cell)
    }


def members(kind: type) -> dict[str, str | None]:
    """Return the public members of a class, with the parameters of its methods."""
    found: dict[str, str | None] = {}
    for base in reversed(kind.__mro__[:-1]):
        for name, value in vars(base).items():
            if not name.startswith("_") and isinstance(value, property | FunctionType):
                found[name] = _parameters(value) if isinstance(value, FunctionType) else None
    return found


def _parameters(function: FunctionType) -> str:
    return ", ".join(name for name in inspect.signature(function).parameters if name != "self")


def test_every_public_name_is_listed() -> None:
    chapters = {"Forewarn", "Vm", "Event", "Observed"}
    assert {*chapters, *named("Errors"), *named("Earlier names")} == set(testing.__all__)
    assert all(chapter(name) for name in chapters)


def test_every_name_can_be_imported() -> None:
    assert [name for name in testing.__all__ if not isinstance(getattr(testing, name), type)] == []
    assert dir(testing) == sorted(testing.__all__)
    with pytest.raises(AttributeError, match="Foreward"):
        getattr(testing, "Foreward")  # noqa: B009 - no such name can be written


def test_service_members_are_listed() -> None:
    assert named("Forewarn") == members(testing.Forewarn)


def test_vm_members_are_listed() -> None:
    attributes = dict.fromkeys(("url", "name", "scope"))
    assert named("Vm") == members(testing.Vm) | attributes


def test_event_members_are_listed() -> None:
    attributes = dict.fromkeys(("id", "scope"))
    assert named("Event") == members(testing.Event) | attributes


def test_request_members_are_listed() -> None:
    assert set(named("Observed")) == set(testing.Observed.__struct_fields__)


def test_marker_parameters_are_listed() -> None:
    assert set(named("The marker")) == {*plugin.OPTIONS, "vm"}
    parameters = inspect.signature(testing.Forewarn).parameters
    assert list(parameters) == list(plugin.OPTIONS)
    assert f"`Forewarn({', '.join(parameters)})`" in chapter("Forewarn")


def test_base_classes_of_errors_are_listed() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| `(\w+)` \|$", chapter("Errors"), re.MULTILINE)
    assert rows == [(name, getattr(testing, name).__bases__[-1].__name__) for name in named("Errors")]
