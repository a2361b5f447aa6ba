"""Lookup of an event by its id or by a prefix of it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.lookup import MAX_JOURNAL_LINES, find_event

OPEN = ["602D9444-D2CD-49C7-8624-8643E7171297", "602D0000-D2CD-49C7-8624-8643E7171297"]
ENDED = "602DEEEE-D2CD-49C7-8624-8643E7171297"


class FakeApi:
    """The events of a service, and its journal."""

    def __init__(self, *ended: str) -> None:
        self._ended = ended
        self.lines = 0

    def events(self) -> Iterator[Any]:
        return (SimpleNamespace(id=id_) for id_ in OPEN)

    def journal(self, *, newest_first: bool) -> Iterator[Any]:
        assert newest_first
        for id_ in (*self._ended, *[None] * 2 * MAX_JOURNAL_LINES):
            self.lines += 1
            yield SimpleNamespace(event=id_)


def find(prefix: str, *ended: str) -> str:
    api: Any = FakeApi(*ended)
    return find_event(api, prefix)


def test_full_id_is_not_looked_up() -> None:
    api: Any = None
    assert find_event(api, ENDED.lower()) == ENDED


def test_prefix_of_an_open_event_comes_before_ended_ones() -> None:
    assert find("602d9", "602D9FFF-0000-0000-0000-000000000000") == OPEN[0]


def test_ended_event_is_found_in_the_journal() -> None:
    assert find("602DEE", ENDED, ENDED) == ENDED


@pytest.mark.parametrize(
    ("prefix", "code"),
    [("602", ExitCode.USAGE), ("web-0", ExitCode.USAGE), ("602D", ExitCode.USAGE), ("FFFF", ExitCode.NOT_FOUND)],
    ids=["too short", "no id", "several", "none"],
)
def test_prefix_that_means_no_single_event_is_refused(prefix: str, code: ExitCode) -> None:
    with pytest.raises(CliError, match=prefix) as refused:
        find(prefix)
    assert refused.value.code is code


def test_journal_is_searched_so_far_and_no_further() -> None:
    api: Any = FakeApi()
    with pytest.raises(CliError):
        find_event(api, "FFFF")
    assert api.lines == MAX_JOURNAL_LINES
