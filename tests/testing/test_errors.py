"""Exceptions of the in-test service: the tree, and the earlier public names."""

import inspect
import re

import pytest

from forewarn.core.base_error import BaseError
from forewarn.testing import errors
from forewarn.testing.errors import InvalidEventType, TooManyRequests, WaitTimeout

DOC = inspect.getdoc(errors) or ""


def test_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn: dict[str, str] = {}
    base = ""
    for line in DOC.splitlines():
        if re.fullmatch(r"\w+Error", line):
            base = line
        elif found := re.match(r"[├└]── (\w+)", line):
            drawn[found[1]] = base
    classes = {
        name: value.__mro__
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseError) and value is not BaseError and value.__name__ == name
    }
    assert drawn.keys() == classes.keys()
    assert [name for name, kind in drawn.items() if kind not in {each.__name__ for each in classes[name]}] == []


@pytest.mark.parametrize(
    ("earlier", "name"),
    [
        ("NoEndpoint", "VmEndpointNotFound"),
        ("TooMuchSeen", "TooManyRequests"),
        ("BadStart", "InvalidStart"),
        ("NoSuchType", "InvalidEventType"),
        ("NotSeen", "WaitTimeout"),
    ],
)
def test_earlier_name_is_an_alias(earlier: str, name: str) -> None:
    assert getattr(errors, earlier) is getattr(errors, name)


def test_messages_have_their_facts() -> None:
    assert "Reboot or Freeze" in str(InvalidEventType("Boot", ["Reboot", "Freeze"]))
    assert str(WaitTimeout("web-0 has not approved", 2.5, "It has sent no request.")) == (
        "web-0 has not approved within 2.5 s. It has sent no request."
    )
    assert "17 oldest" in str(TooManyRequests(17))
