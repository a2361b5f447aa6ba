"""DHCP packets: the DHCPDISCOVER byte by byte, and which packets count as an offer."""

from ipaddress import IPv4Address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forewarn.client.dhcp import DhcpResponse, build_discover, parse_offer

TRANSACTION = bytes.fromhex("12345678")
MAC = bytes.fromhex("020304050607")
SERVER, ENDPOINT = "10.0.0.1", "10.0.0.4"


def option(number: int, value: bytes) -> bytes:
    return bytes((number, len(value))) + value


def address(text: str) -> bytes:
    return IPv4Address(text).packed


IS_OFFER = option(53, b"\x02")
HAS_ENDPOINT = option(245, address(ENDPOINT))
NAMES_SERVER = option(54, address(SERVER))
END = b"\xff"


def reply(
    *options: bytes,
    operation: int = 2,
    transaction: bytes = TRANSACTION,
    mac: bytes = MAC,
    cookie: bytes = b"\x63\x82\x53\x63",
    server_name: bytes = b"",
    file_name: bytes = b"",
) -> bytes:
    """Return a packet of a server."""
    addresses = bytes(4) + address("10.0.0.50") + bytes(8)
    head = bytes((operation, 1, 6, 0)) + transaction + bytes(4) + addresses + mac.ljust(16, b"\0")
    return head + server_name.ljust(64, b"\0") + file_name.ljust(128, b"\0") + cookie + b"".join(options)


OFFER = reply(IS_OFFER, NAMES_SERVER, HAS_ENDPOINT, END)


def test_discover_packet_requests_option_245_by_broadcast() -> None:
    assert build_discover(TRANSACTION, MAC) == bytes.fromhex(
        "01 01 06 00"  # a request, Ethernet, six bytes of address, no relay
        "12 34 56 78"
        "0000 8000"  # no seconds yet; answer by broadcast
        "00000000 00000000 00000000 00000000"  # no address is known
        "020304050607 00000000000000000000"
    ) + bytes(64 + 128) + bytes.fromhex(
        "63 82 53 63"
        "35 01 01"  # DHCPDISCOVER
        "37 01 f5"  # wanted: option 245
        "ff"
    ) + bytes(300 - 247)  # fmt: skip


@pytest.mark.parametrize(("transaction", "mac"), [(b"123", MAC), (TRANSACTION, b"12345")], ids=["transaction", "MAC"])
def test_discover_packet_checks_its_arguments(transaction: bytes, mac: bytes) -> None:
    with pytest.raises(ValueError, match="4 bytes, a MAC address 6"):
        build_discover(transaction, mac)


@pytest.mark.parametrize(
    ("packet", "offer"),
    [
        (OFFER, DhcpResponse(server=SERVER, endpoint=ENDPOINT)),
        (reply(IS_OFFER, HAS_ENDPOINT, END), DhcpResponse(server=None, endpoint=ENDPOINT)),
        (reply(IS_OFFER, NAMES_SERVER, END), DhcpResponse(server=SERVER, endpoint=None)),
        (reply(IS_OFFER, option(245, b"\x0a\0\0"), END), DhcpResponse(server=None, endpoint=None)),
        (reply(IS_OFFER, HAS_ENDPOINT), DhcpResponse(server=None, endpoint=ENDPOINT)),
        (reply(b"\0\0", IS_OFFER, b"\0", HAS_ENDPOINT, END), DhcpResponse(server=None, endpoint=ENDPOINT)),
        (reply(IS_OFFER, END, HAS_ENDPOINT), DhcpResponse(server=None, endpoint=None)),
        (
            reply(IS_OFFER, HAS_ENDPOINT, option(245, address(SERVER)), END),
            DhcpResponse(server=None, endpoint=ENDPOINT),
        ),
        (
            reply(IS_OFFER, option(52, b"\x01"), END, file_name=HAS_ENDPOINT + END),
            DhcpResponse(server=None, endpoint=ENDPOINT),
        ),
        (
            reply(IS_OFFER, option(52, b"\x02"), END, server_name=HAS_ENDPOINT + END, file_name=NAMES_SERVER),
            DhcpResponse(server=None, endpoint=ENDPOINT),
        ),
        (
            reply(IS_OFFER, option(52, b"\x03"), END, server_name=HAS_ENDPOINT, file_name=NAMES_SERVER),
            DhcpResponse(server=SERVER, endpoint=ENDPOINT),
        ),
        (reply(IS_OFFER, END, file_name=HAS_ENDPOINT), DhcpResponse(server=None, endpoint=None)),
        (reply(IS_OFFER, option(52, b"\x09"), END, file_name=HAS_ENDPOINT), DhcpResponse(server=None, endpoint=None)),
        (OFFER[:-4], DhcpResponse(server=SERVER, endpoint=None)),
    ],
    ids=[
        "complete",
        "no server id",
        "no option 245",
        "option 245 is not an address",
        "no end mark",
        "padded",
        "option after the end mark",
        "option twice",
        "option in the file field",
        "option in the server name field",
        "options in both fields",
        "field without option overload",
        "unknown option overload",
        "truncated in option 245",
    ],
)
def test_offer_is_parsed(packet: bytes, offer: DhcpResponse) -> None:
    assert parse_offer(packet, TRANSACTION, MAC) == offer


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        OFFER[:236],
        OFFER[:240],
        reply(IS_OFFER, HAS_ENDPOINT, END, operation=1),
        reply(IS_OFFER, HAS_ENDPOINT, END, transaction=b"\x12\x34\x56\x79"),
        reply(IS_OFFER, HAS_ENDPOINT, END, mac=bytes.fromhex("020304050608")),
        reply(IS_OFFER, HAS_ENDPOINT, END, cookie=b"\x63\x82\x53\x62"),
        reply(HAS_ENDPOINT, END),
        reply(option(53, b"\x05"), HAS_ENDPOINT, END),
        reply(option(53, b"\x02\x02"), HAS_ENDPOINT, END),
        reply(b"\x35"),
        build_discover(TRANSACTION, MAC),
    ],
    ids=[
        "nothing",
        "no cookie",
        "no options",
        "a request",
        "another transaction",
        "another machine",
        "wrong cookie",
        "no message type",
        "an acknowledgement",
        "invalid message type",
        "truncated in an option",
        "our own discover packet",
    ],
)
def test_other_packets_are_not_offers(packet: bytes) -> None:
    assert parse_offer(packet, TRANSACTION, MAC) is None


@given(st.binary(max_size=600))
@example(b"")
def test_garbage_is_not_an_offer(packet: bytes) -> None:
    assert parse_offer(packet, TRANSACTION, MAC) is None


@given(st.binary(max_size=400), st.binary(max_size=64), st.binary(max_size=128))
def test_garbage_in_an_offer_never_crashes(options: bytes, server_name: bytes, file_name: bytes) -> None:
    packet = reply(IS_OFFER, options, server_name=server_name, file_name=file_name)
    assert isinstance(parse_offer(packet, TRANSACTION, MAC), DhcpResponse)


@given(st.integers(0, len(OFFER)))
def test_truncated_offer_is_never_misread(length: int) -> None:
    whole = parse_offer(OFFER, TRANSACTION, MAC)
    read = parse_offer(OFFER[:length], TRANSACTION, MAC)
    assert whole is not None
    if read is not None:
        assert read.endpoint in (None, whole.endpoint)
        assert read.server in (None, whole.server)


@given(st.ip_addresses(v=4), st.binary(min_size=4, max_size=4), st.binary(min_size=6, max_size=6))
def test_offer_round_trip(endpoint: IPv4Address, transaction: bytes, mac: bytes) -> None:
    packet = reply(IS_OFFER, option(245, endpoint.packed), END, transaction=transaction, mac=mac)
    assert parse_offer(packet, transaction, mac) == DhcpResponse(server=None, endpoint=str(endpoint))
