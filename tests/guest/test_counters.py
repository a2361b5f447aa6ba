"""Counters of the guest endpoint."""

from forewarn.guest.counters import Counters
from forewarn.wire.error_responses import REASON_PHRASES, ErrorReason
from tests.guest.running_endpoint import request, run_endpoint


def test_every_status_and_reason_is_counted_from_zero() -> None:
    """A metric that appears only with its first error is missed by an alert on its increase."""
    counters = Counters()
    assert dict(counters.responses) == dict.fromkeys(REASON_PHRASES, 0)
    assert counters.refusals == dict.fromkeys(ErrorReason, 0)
    counters.responses[299] += 1
    assert counters.responses[299] == 1


async def test_endpoint_counts_connections_responses_and_refusals() -> None:
    async with run_endpoint() as endpoint:
        peer = await endpoint.connect()
        assert (await peer.request()).status == 200
        assert (await peer.request(request(metadata=False))).status == 400
        counters = endpoint.counters
        assert (counters.accepted, counters.connections, counters.long_polls) == (1, 1, 0)
        assert {status: count for status, count in counters.responses.items() if count} == {200: 1, 400: 1}
        assert sum(counters.refusals.values()) == 1
        assert (counters.failures, counters.timed_out, counters.ambiguous_callers) == (0, 0, 0)
