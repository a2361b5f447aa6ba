"""Where the system does not let us choose an interface, as on Windows, DHCP is asked by the one that it takes."""

import pytest

from forewarn.client import dhcp_socket
from forewarn.client.dhcp_socket import Interface, active_interfaces

A_REAL_ADDRESS = 0x020304050607
MADE_UP = A_REAL_ADDRESS | 1 << 40


@pytest.mark.parametrize(
    ("node", "interfaces"),
    [(A_REAL_ADDRESS, (Interface("", bytes.fromhex("020304050607")),)), (MADE_UP, ())],
    ids=["known", "made up"],
)
def test_address_of_the_machine_stands_for_its_interface(
    monkeypatch: pytest.MonkeyPatch, node: int, interfaces: tuple[Interface, ...]
) -> None:
    """Python makes an address up where it finds none; no server could answer to that."""
    monkeypatch.setattr(dhcp_socket, "BIND_TO_DEVICE", None)
    monkeypatch.setattr("uuid.getnode", lambda: node)
    assert active_interfaces() == interfaces


def test_interface_without_a_name_is_spoken_of_in_words() -> None:
    assert [str(Interface(name, bytes(6))) for name in ("", "eth0")] == ["this machine's network", "eth0"]
