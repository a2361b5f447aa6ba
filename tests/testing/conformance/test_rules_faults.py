"""Forewarn with injected faults: each fault fails the rules that it violates."""

from collections.abc import Iterator, Set

import pytest

from forewarn.testing.conformance import RULES, Verdict, examine
from forewarn.testing.service import Forewarn
from tests.testing.conformance.reports import GUARD, no_delay, rule_ids

DOCUMENT = [row for row in RULES if row.section == "The document"]

FOUND: dict[str, Set[str]] = {
    "extra-field": {"document-keys", "event-keys", "event-keys-older", "etag"},
    "unknown-event-type": {"event-type", "etag"},
    "wrong-content-type": {"content-type", "etag"},
    "status-500": {"etag-changed"},
}
"""A faulty document has no ETag, so that clients do not cache it."""


@pytest.fixture(scope="module")
def forewarn() -> Iterator[Forewarn]:
    with Forewarn() as service:
        service.schedule("Freeze", "web-0", notice="1h")
        yield service


@pytest.mark.parametrize("fault", FOUND)
def test_fault_is_found(forewarn: Forewarn, fault: str) -> None:
    forewarn.fault(fault, vm="web-0")
    try:
        report = examine(forewarn.vm("web-0").url, rules=DOCUMENT, pace=no_delay(), timeout=GUARD)
    finally:
        forewarn.clear_faults()
    assert rule_ids(report, Verdict.WRONG) == FOUND[fault]


def test_kit_retries_during_a_short_fault(forewarn: Forewarn) -> None:
    forewarn.fault("410", vm="web-0", times=3)
    report = examine(forewarn.vm("web-0").url, rules=DOCUMENT, pace=no_delay(), timeout=GUARD)
    assert rule_ids(report, Verdict.WRONG) == set()
