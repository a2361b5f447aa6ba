"""Counters of the operator port."""

from forewarn.operator.counters import STATUSES, Counters, ProtocolError, RefuseReason


def test_counters_start_at_zero_with_every_label() -> None:
    """Prometheus cannot compute a rate of a series that appears with its first event."""
    counters = Counters()
    assert counters.responses == dict.fromkeys(STATUSES, 0)
    assert counters.refusals == dict.fromkeys(RefuseReason, 0)
    assert counters.protocol_errors == dict.fromkeys(ProtocolError, 0)


def test_other_statuses_are_counted_too() -> None:
    counters = Counters()
    counters.responses[418] += 1
    assert counters.responses[418] == 1
