"""Every error of the rules and of the fleet has its answer."""

from collections.abc import Iterator

import pytest

import forewarn.fleet.filling
from forewarn.core.errors import CoreError
from forewarn.fleet.errors import FleetError
from forewarn.operator.refusals import STATUS

NEVER_ASKED_FOR = {forewarn.fleet.filling.FilledOtherwise}
"""Raised only while the service starts."""


def tree(error: type[Exception]) -> Iterator[type[Exception]]:
    yield error
    for below in error.__subclasses__():
        yield from tree(below)


@pytest.mark.parametrize("root", [CoreError, FleetError])
def test_every_error_has_a_row(root: type[Exception]) -> None:
    ours = {error for error in tree(root) if error.__module__.startswith("forewarn.")}
    assert ours - NEVER_ASKED_FOR - set(STATUS) == set()


def test_codes_are_words_for_programs() -> None:
    assert {error.code for error in STATUS if not error.code.replace("-", "").isalpha()} == set()
