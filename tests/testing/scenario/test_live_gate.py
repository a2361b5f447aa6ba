"""The health gate of a live scenario."""

import http.client
from urllib.parse import urlsplit

from forewarn.testing.scenario.live_gate import LiveGate


def status(url: str) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_gate_responds_by_whether_it_is_open() -> None:
    gate = LiveGate()
    assert not gate.is_used
    try:
        assert status(gate.url) == 200
        gate.is_open = False
        assert (status(gate.url), gate.is_used, gate.url) == (503, True, f"{gate.origin}/health")
    finally:
        gate.close()


def test_gate_that_was_never_used_has_nothing_to_close() -> None:
    LiveGate().close()
