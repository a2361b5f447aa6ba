"""DHCP packets: build a DHCPDISCOVER and parse option 245 (the endpoint's address) of the offer. Pure."""

from collections.abc import Iterator

import msgspec

_REQUEST, _REPLY = 1, 2
_ETHERNET = 1
_MAC_LENGTH = 6
_ADDRESS_LENGTH = 4
_ANSWER_BY_BROADCAST = 0x8000
_MAGIC_COOKIE = b"\x63\x82\x53\x63"

# The fixed part of a packet, before its options (RFC 2131, section 2).
_TRANSACTION = slice(4, 8)
_HARDWARE_ADDRESS = slice(28, 34)
_SERVER_NAME = slice(44, 108)
_FILE_NAME = slice(108, 236)
_COOKIE = slice(236, 240)
_OPTIONS = slice(240, None)
_MINIMUM_LENGTH = 300
"""Old DHCP relays drop shorter packets."""

_PAD, _END = 0, 255
_OVERLOAD, _MESSAGE_TYPE, _SERVER_ID, _PARAMETER_REQUEST_LIST, _ENDPOINT = 52, 53, 54, 55, 245
_DISCOVER, _OFFER = 1, 2
_OVERLOADED = {1: (_FILE_NAME,), 2: (_SERVER_NAME,), 3: (_FILE_NAME, _SERVER_NAME)}
"""The fixed fields that hold more options, by the value of option 52 (option overload)."""


class DhcpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A DHCP server's offer. `endpoint` is None without an option 245 that contains an IPv4 address."""

    server: str | None
    endpoint: str | None


def build_discover(transaction: bytes, mac: bytes) -> bytes:
    """Build the packet that requests an offer with option 245. It reserves and changes no address."""
    if len(transaction) != _TRANSACTION.stop - _TRANSACTION.start or len(mac) != _MAC_LENGTH:
        raise ValueError("a transaction id must have 4 bytes, a MAC address 6")
    head = bytes((_REQUEST, _ETHERNET, _MAC_LENGTH, 0)) + transaction
    # The machine may not have an address yet, so the server must answer by broadcast.
    flags = b"\0\0" + _ANSWER_BY_BROADCAST.to_bytes(2, "big")
    addresses = bytes(16)
    fixed = head + flags + addresses + mac.ljust(_COOKIE.start - _HARDWARE_ADDRESS.start, b"\0") + _MAGIC_COOKIE
    options = bytes((_MESSAGE_TYPE, 1, _DISCOVER, _PARAMETER_REQUEST_LIST, 1, _ENDPOINT, _END))
    return (fixed + options).ljust(_MINIMUM_LENGTH, b"\0")


def parse_offer(packet: bytes, transaction: bytes, mac: bytes) -> DhcpResponse | None:
    """Parse an offer for this transaction and MAC address; return None for any other or invalid packet."""
    is_reply = packet[:3] == bytes((_REPLY, _ETHERNET, _MAC_LENGTH))
    is_ours = packet[_TRANSACTION] == transaction and packet[_HARDWARE_ADDRESS] == mac
    if not (is_reply and is_ours and packet[_COOKIE] == _MAGIC_COOKIE):
        return None
    options = _options(packet)
    if options.get(_MESSAGE_TYPE) != bytes((_OFFER,)):
        return None
    return DhcpResponse(server=_address(options.get(_SERVER_ID)), endpoint=_address(options.get(_ENDPOINT)))


def _options(packet: bytes) -> dict[int, bytes]:
    """Return all options, including those in overloaded fields; the first one with a number wins."""
    options = _first_of_each(packet[_OPTIONS])
    for field in _OVERLOADED.get(int.from_bytes(options.get(_OVERLOAD, b""), "big"), ()):
        options = _first_of_each(packet[field]) | options
    return options


def _first_of_each(field: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for number, value in _each(field):
        found.setdefault(number, value)
    return found


def _each(field: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the options of a field, up to its end mark or a truncated option."""
    position = 0
    while position < len(field) and field[position] != _END:
        if field[position] == _PAD:
            position += 1
            continue
        begin = position + 2
        end = begin + int.from_bytes(field[position + 1 : begin], "big")
        if begin > len(field) or end > len(field):
            return
        yield field[position], field[begin:end]
        position = end


def _address(value: bytes | None) -> str | None:
    return ".".join(map(str, value)) if value is not None and len(value) == _ADDRESS_LENGTH else None
