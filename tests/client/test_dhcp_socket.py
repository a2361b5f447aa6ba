"""Systems such as Windows, where a program cannot choose the interface of DHCP requests."""

import pytest

from forewarn.client import dhcp_socket
from forewarn.client.dhcp_socket import Interface, active_interfaces

A_REAL_ADDRESS = 0x020304050607
MADE_UP = A_REAL_ADDRESS | 1 << 40


@pytest.mark.parametrize(
    ("node", "interfaces"),
    [(A_REAL_ADDRESS, (Interface("", bytes.fromhex("020304050607")),)), (MADE_UP, ())],
    ids=["known", "random"],
)
def test_machine_address_is_used_without_named_interfaces(
    monkeypatch: pytest.MonkeyPatch, node: int, interfaces: tuple[Interface, ...]
) -> None:
    """Python returns a random address if it finds none; no server could answer to that."""
    monkeypatch.setattr(dhcp_socket, "BIND_TO_DEVICE", None)
    monkeypatch.setattr("uuid.getnode", lambda: node)
    assert active_interfaces() == interfaces


def test_unnamed_interface_has_a_description() -> None:
    assert [str(Interface(name, bytes(6))) for name in ("", "eth0")] == ["this machine's network", "eth0"]
