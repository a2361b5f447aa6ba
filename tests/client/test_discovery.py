"""Endpoint discovery: retries and the choice among offers, without a network and without waiting."""

from collections.abc import Iterable, Iterator

import pytest

from forewarn.client.dhcp import DhcpResponse
from forewarn.client.dhcp_socket import Interface
from forewarn.client.discovery import DhcpTimeout, EndpointNotFound, EndpointUnavailable, find_endpoint

INTERFACES = (Interface("eth0", bytes(6)), Interface("eth1", bytes(6)))
SILENT = DhcpResponse(server="10.0.0.1", endpoint=None)
NAMELESS = DhcpResponse(server=None, endpoint=None)
RIGHT = DhcpResponse(server="10.0.0.1", endpoint="10.0.0.4")
WRONG = DhcpResponse(server="10.0.0.2", endpoint="10.0.0.5")


class DiscoveryHarness:
    """A fake network with given offers per request, and a fake clock that only records pauses."""

    def __init__(self, *offers: Iterable[DhcpResponse]) -> None:
        self._offers = iter(offers)
        self.happened: list[str] = []

    def ask(self, limit: float) -> Iterator[DhcpResponse]:
        self.happened.append(f"ask for {limit:.0f} s")
        yield from next(self._offers, ())

    def pause(self, seconds: float) -> None:
        self.happened.append(f"pause {seconds:.0f} s")

    def is_right(self, url: str) -> bool:
        self.happened.append(f"look at {url}")
        return url == "http://10.0.0.4"

    def search(self) -> str:
        return find_endpoint(self.ask, INTERFACES, is_right=self.is_right, pause=self.pause)


def test_first_working_address_is_the_endpoint() -> None:
    harness = DiscoveryHarness([SILENT, WRONG, RIGHT, WRONG])
    assert harness.search() == "http://10.0.0.4"
    assert harness.happened == ["pause 0 s", "ask for 10 s", "look at http://10.0.0.5", "look at http://10.0.0.4"]


def test_missing_offers_are_retried() -> None:
    harness = DiscoveryHarness([], [], [RIGHT])
    assert harness.search() == "http://10.0.0.4"
    assert harness.happened == [
        *("pause 0 s", "ask for 10 s"),
        *("pause 10 s", "ask for 10 s"),
        *("pause 30 s", "ask for 10 s", "look at http://10.0.0.4"),
    ]


def test_discovery_gives_up_after_five_requests() -> None:
    harness = DiscoveryHarness()
    with pytest.raises(DhcpTimeout, match=r"none from a DHCP server on eth0, eth1; .* set FOREWARN_ENDPOINT") as raised:
        harness.search()
    assert raised.value.interfaces == ("eth0", "eth1")
    assert harness.happened[::2] == [f"pause {seconds} s" for seconds in (0, 10, 30, 60, 60)]
    assert harness.happened[1::2] == ["ask for 10 s"] * 5


def test_offers_without_option_245_end_the_discovery() -> None:
    harness = DiscoveryHarness([SILENT, NAMELESS, SILENT], [RIGHT])
    with pytest.raises(EndpointNotFound, match=r"the DHCP server 10\.0\.0\.1 has no option 245") as raised:
        harness.search()
    assert raised.value.servers == ("10.0.0.1",)
    assert harness.happened == ["pause 0 s", "ask for 10 s"]


def test_address_without_events_is_reported() -> None:
    harness = DiscoveryHarness([SILENT, WRONG], [RIGHT])
    with pytest.raises(
        EndpointUnavailable, match=r"the endpoint is http://10\.0\.0\.5, but it does not serve Scheduled Events"
    ) as raised:
        harness.search()
    assert raised.value.urls == ("http://10.0.0.5",)
