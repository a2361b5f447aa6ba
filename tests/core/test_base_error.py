"""Errors with fields: arguments, message, code, details, and copies in other processes."""

import copy
import pickle
from datetime import UTC, datetime
from typing import ClassVar

import pytest

from forewarn.core.base_error import BaseError, CodedError


class SampleError(BaseError):
    """An error with every kind of field."""

    limit: ClassVar[int] = 3
    template = "{vm} of {scopes} is one of {scopes:or}, since {at}{more} (limit {limit}, {size:g} MB)"
    vm: str
    scopes: tuple[str, ...]
    at: datetime = datetime(2026, 1, 31, 10, 15, tzinfo=UTC)
    size: float = 1.5

    @property
    def more(self) -> str:
        """A part of the message that is computed."""
        return f" and {len(self.scopes)} more"


class VmSampleError(SampleError, ValueError):
    """It adds a field to those of its base, and is a ValueError as well."""

    template = "{host} {vm!r}"
    host: str = "hv-0"


class SampleNotFound(CodedError):
    """Its code is derived from its name."""

    template = "no {sample}: {advice}"
    hidden_fields = frozenset({"advice"})
    sample: str
    advice: str = "look elsewhere"


class OtherSampleNotFound(SampleNotFound):
    """It has its own code."""

    code = "sample-gone"


def test_template_is_filled_with_fields_class_variables_and_properties() -> None:
    error = SampleError("web-0", ("a", "b"))
    assert str(error) == "web-0 of a, b is one of a or b, since 2026-01-31 10:15:00Z and 2 more (limit 3, 1.5 MB)"


def test_braces_in_a_value_are_not_expanded() -> None:
    assert str(SampleNotFound("{vm}")) == "no {vm}: look elsewhere"


def test_fields_of_the_base_come_first() -> None:
    error = VmSampleError("web-0", (), size=2.0, host="hv-1")
    assert VmSampleError.fields == ("vm", "scopes", "at", "size", "host")
    assert (error.vm, error.scopes, error.at, error.size, error.host) == ("web-0", (), SampleError.at, 2.0, "hv-1")
    assert str(error) == "hv-1 'web-0'"


@pytest.mark.parametrize(
    ("values", "named", "message"),
    [
        pytest.param((), {}, "SampleError is missing vm, scopes", id="missing"),
        pytest.param(("a", (), 1, 2, 3), {}, "SampleError takes the fields vm, scopes, at, size, each once", id="more"),
        pytest.param(("a",), {"vm": "b"}, "SampleError takes the fields vm, scopes, at, size, each once", id="twice"),
        pytest.param(("a", ()), {"x": 1}, "SampleError takes the fields vm, scopes, at, size, each once", id="unknown"),
    ],
)
def test_wrong_fields_are_refused(values: tuple[object, ...], named: dict[str, object], message: str) -> None:
    """A type checker finds these errors; values that are not type-checked must fail as well."""
    make: type = SampleError
    with pytest.raises(TypeError, match=message):
        make(*values, **named)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_copy_has_the_same_fields_and_message(duplicate: object) -> None:
    assert callable(duplicate)
    error = VmSampleError("web-0", ("a",), host="hv-1")
    error.add_note("seen twice")
    twin = duplicate(error)
    assert (type(twin), vars(twin), str(twin)) == (VmSampleError, vars(error), str(error))


def test_code_is_the_name_of_the_class_unless_it_has_its_own() -> None:
    class SampleTooLarge(OtherSampleNotFound):
        """The code of the base is not inherited."""

    assert (SampleNotFound.code, OtherSampleNotFound.code) == ("sample-not-found", "sample-gone")
    assert SampleTooLarge.code == "sample-too-large"


def test_details_are_the_fields_that_are_not_hidden() -> None:
    assert SampleNotFound("x").details == {"sample": "x"}
