"""Where the system does not let us choose an interface, as on Windows, DHCP is asked by the one that it takes."""

import pytest

from forewarn.client import broadcast
from forewarn.client.broadcast import Interface, interfaces_that_are_up

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
    monkeypatch.setattr(broadcast, "BY_INTERFACE", None)
    monkeypatch.setattr("uuid.getnode", lambda: node)
    assert interfaces_that_are_up() == interfaces


def test_interface_without_a_name_is_spoken_of_in_words() -> None:
    assert [str(Interface(name, bytes(6))) for name in ("", "eth0")] == ["this machine's network", "eth0"]
