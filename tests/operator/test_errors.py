"""Errors of the operator API: one tree, and what they disclose."""

import inspect
import re

import pytest

from forewarn.core.access import Role
from forewarn.fleet.errors import VmNotFound
from forewarn.operator import errors
from forewarn.operator.errors import (
    InvalidFleetFile,
    JournalEventNotFound,
    OperatorError,
    TokenNotAllowed,
    TokenVmNotFound,
)

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, OperatorError) and value is not OperatorError
]


def test_error_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn = re.findall(r"[├└]── (\w+)", inspect.getdoc(errors) or "")
    assert drawn == [kind.__name__ for kind in CLASSES]


def test_every_error_has_a_code_of_its_own_kind() -> None:
    assert [kind.__name__ for kind in CLASSES if kind.code == OperatorError.code] == []


@pytest.mark.parametrize(("is_limited", "word"), [(True, "without scopes"), (False, "viewer")])
def test_refused_token_is_reported_with_the_missing_role(is_limited: bool, word: str) -> None:
    error = TokenNotAllowed("ci", Role.VIEWER, Role.ADMIN, is_limited)
    assert word in str(error)
    assert "is_limited" not in error.details


def test_vm_that_a_token_may_not_see_is_not_found() -> None:
    error = TokenVmNotFound("web-0", "ci", ("db-*",))
    assert isinstance(error, VmNotFound)
    assert (error.code, error.vm, error.token_name) == ("vm-not-found", "web-0", "ci")


@pytest.mark.parametrize(("scopes", "place"), [((), " in the journal"), (("web",), " in web, ")])
def test_event_that_is_not_found_was_looked_for_in_the_scopes_of_the_token(scopes: tuple[str, ...], place: str) -> None:
    error = JournalEventNotFound("E1", scopes)
    assert error.place.startswith(place)
    assert "scopes" not in error.details


@pytest.mark.parametrize(
    ("key", "line", "text"),
    [("a.b", "3", "line 3: a.b: no"), ("", "3", "line 3: no"), ("a", "", "a: no"), ("", "", "no")],
)
def test_invalid_fleet_file_has_line_and_key_as_far_as_they_are_known(key: str, line: str, text: str) -> None:
    assert str(InvalidFleetFile(key, "no", line)) == text
