"""Errors of the fleet: the tree, one code for each, and the names that a message lists."""

import inspect
import re

import pytest

from forewarn.fleet import errors
from forewarn.fleet.errors import (
    MAX_NAMES,
    AmbiguousVm,
    FleetError,
    GateNotFound,
    JournalPruned,
    OutcomeUnknown,
    PartialSchedule,
    SaveFailed,
)

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, FleetError)]


def test_error_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn = re.findall(r"[├└]── (\w+)", inspect.getdoc(errors) or "")
    assert sorted(drawn) == sorted(kind.__name__ for kind in CLASSES if kind is not FleetError)


def test_every_error_has_its_own_code() -> None:
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes)


def test_message_has_the_fields_of_the_error() -> None:
    for error, values in (
        (AmbiguousVm("web-0", ("a/web-0", "b/web-0")), ["web-0", "a/web-0 or b/web-0"]),
        (JournalPruned(3, 17), ["3", "17"]),
        (PartialSchedule(("web/E1", "db/E2"), "it is full"), ["web/E1, db/E2", "it is full"]),
        (SaveFailed("disk full"), ["disk full"]),
        (OutcomeUnknown("disk I/O error"), ["it is not known whether", "disk I/O error", "same idempotency key"]),
    ):
        assert [value for value in values if value not in str(error)] == []


@pytest.mark.parametrize(
    ("known", "choices"),
    [
        ((), "the settings have no gates"),
        (("b", "a"), "the settings have a, b"),
        (
            tuple(f"g{n:02}" for n in range(MAX_NAMES + 2)),
            f"the settings have {', '.join(f'g{n:02}' for n in range(MAX_NAMES))} and 2 more",
        ),
    ],
    ids=["none", "few", "many"],
)
def test_unknown_gate_is_refused_with_those_that_exist(known: tuple[str, ...], choices: str) -> None:
    error = GateNotFound("health", known)
    assert (error.gate, error.choices) == ("health", choices)
    assert choices in str(error)
