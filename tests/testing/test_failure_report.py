"""The report of a failed test: the journal, and the requests of VMs."""

from collections.abc import Iterator

import pytest

from forewarn.testing import Forewarn, failure_report
from forewarn.testing.failure_report import report_sections


@pytest.fixture
def service() -> Iterator[Forewarn]:
    with Forewarn(["web-0"]) as forewarn:
        yield forewarn


def sections(service: Forewarn) -> tuple[list[str], list[str]]:
    journal, requests = (text.splitlines() for _, text in report_sections(service))
    return journal, requests


def test_service_in_which_nothing_happened_says_so(service: Forewarn) -> None:
    assert sections(service) == (["no entries"], ["no requests"])


def test_event_and_approval_are_in_both_sections(service: Forewarn) -> None:
    vm = service.vm("web-0")
    event = service.schedule("Reboot", vm, notice="15m", why="CVE")
    vm.approve(event)
    journal, requests = sections(service)
    assert [line for line in journal if f"event {event.id} scheduled by" in line and line.endswith("(CVE)")] != []
    assert [line for line in journal if " approved by vm:web-0" in line] != []
    assert requests[-1].endswith(f" approving {event.id}: answered 200")


def test_equal_requests_in_a_row_share_a_line(service: Forewarn) -> None:
    vm = service.vm("web-0")
    vm.document()
    (once,) = sections(service)[1]
    vm.document()
    (twice,) = sections(service)[1]
    assert ("times" in once, twice.endswith("answered 200 (2 times)")) == (False, True)


def test_older_lines_are_left_out(service: Forewarn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_report, "MAX_LINES", 2)
    for _ in range(3):
        service.cancel(service.schedule("Reboot", "web-0", notice="15m"))
    first, *lines = sections(service)[0]
    assert (first, len(lines)) == ("… 4 earlier lines omitted", 2)


def test_stopped_service_has_no_journal_and_its_requests() -> None:
    with Forewarn(["web-0"]) as service:
        service.vm("web-0").document()
    journal, requests = sections(service)
    assert (len(journal), len(requests)) == (1, 1)
