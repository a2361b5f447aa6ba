"""Property test: for any response of an endpoint, the kit has a finding for every rule and does not crash."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.testing.conformance import RULES, Report, examine
from tests.support.examples import examples
from tests.testing.conformance.mock import VERSIONS, MockEndpoint, MockRequest, MockResponse, event, run_mock
from tests.testing.conformance.reports import GUARD, no_delay

TEXTS = st.text(max_size=20) | st.sampled_from(["Scheduled", "Started", "Reboot", "Preempt", "", *VERSIONS])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(LEAVES, lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXTS, below, max_size=3))
EVENTS = st.fixed_dictionaries({}, optional=dict.fromkeys(event("Reboot"), VALUES))
DOCUMENTS = st.fixed_dictionaries(
    {}, optional={"DocumentIncarnation": VALUES, "Events": st.lists(EVENTS | VALUES, max_size=3), "More": VALUES}
)
ID = "602D9444-D2CD-49C7-8624-8643E7171297"


class Garbled(MockEndpoint):
    """Sends the same given response to every request."""

    def __init__(self, status: int, told: Any, headers: dict[str, str]) -> None:
        super().__init__()
        self.status, self.told, self.headers = status, told, headers

    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        return MockResponse(self.status, json.dumps(self.told).encode(), tuple(self.headers.items()))


def run_kit(mock: MockEndpoint) -> Report:
    with run_mock(mock) as url:
        # The watch ends after the first look.
        return examine(url, approve_event=ID, burst=True, watch_seconds=1e-9, pace=no_delay(), timeout=GUARD)


def _named(document: Any) -> Any:
    """Make the first event of the document approvable, if there is one."""
    events = document.get("Events")
    if events and isinstance(events[0], dict):
        events[0] |= {"EventId": ID, "EventStatus": "Scheduled"}
    return document


@given(
    status=st.sampled_from([200, 200, 200, 204, 304, 400, 404, 405, 500]),
    told=DOCUMENTS.map(_named) | VALUES,
    headers=st.dictionaries(
        st.sampled_from(["ETag", "Server", "Date", "Allow", "Forewarn-Wait", "x-ms-request-id"]),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=10),
    ),
)
@settings(max_examples=examples(15))
def test_every_rule_has_a_finding(status: int, told: Any, headers: dict[str, str]) -> None:
    report = run_kit(Garbled(status, told, headers))
    assert [finding.row for finding in report.findings] == [row.id for row in RULES]


def test_deeply_nested_documents_are_checked() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = {"compute": deep, "Events": [deep]} if isinstance(deep, str) else [deep]
    assert len(run_kit(Garbled(200, deep, {})).findings) == len(RULES)
