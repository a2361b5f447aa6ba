"""The link-local address: calls of the program `ip`, and the messages about its errors.

`tests/namespaces` puts it on a real interface, which needs root.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec
import pytest

from forewarn.guest import link_local
from forewarn.guest.link_local import ADDRESS, LinkLocalError, link_local_address
from forewarn.process import ProcessResult

SHOW = ["ip", "-json", "-4", "address", "show", "dev", "br0"]
ADD = ["ip", "address", "add", f"{ADDRESS}/32", "dev", "br0"]
DELETE = ["ip", "address", "delete", f"{ADDRESS}/32", "dev", "br0"]


class FakeIp:
    """A fake `ip` that knows the addresses of one interface."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.calls: list[list[str]] = []
        self.error: Exception | None = None
        self.stderr = ""

    async def __call__(
        self, command: Sequence[str], environ: Mapping[str, str], *, time_limit: timedelta
    ) -> ProcessResult:
        self.calls.append(list(command))
        if self.error is not None:
            raise self.error
        infos = [{"addr_info": [{"family": "inet", "local": address} for address in self.addresses]}]
        return ProcessResult(1 if self.stderr else 0, msgspec.json.encode(infos).decode(), self.stderr)


@pytest.fixture
def ip(monkeypatch: pytest.MonkeyPatch) -> FakeIp:
    fake = FakeIp("10.0.0.1")
    monkeypatch.setattr(link_local, "run_process", fake)
    return fake


async def test_address_is_on_the_interface_as_long_as_the_context_lasts(ip: FakeIp) -> None:
    async with link_local_address("br0"):
        assert ip.calls == [SHOW, ADD]
    assert ip.calls == [SHOW, ADD, DELETE]


async def test_address_is_removed_after_an_error(ip: FakeIp) -> None:
    with pytest.raises(ZeroDivisionError):
        async with link_local_address("br0"):
            raise ZeroDivisionError
    assert ip.calls[-1] == DELETE


async def test_address_that_was_there_before_stays(ip: FakeIp) -> None:
    ip.addresses.append(ADDRESS)
    async with link_local_address("br0"):
        pass
    assert ip.calls == [SHOW]


@pytest.mark.parametrize(
    ("error", "stderr", "word"),
    [
        (FileNotFoundError(), "", "iproute2"),
        (TimeoutError(), "", "10s"),
        (None, 'Device "br0" does not exist.\n', "does not exist"),
        (None, "RTNETLINK answers: Operation not permitted\n", "root"),
    ],
    ids=["missing", "hangs", "no such interface", "not allowed"],
)
async def test_refusal_has_the_interface_and_the_reason(
    ip: FakeIp, error: Exception | None, stderr: str, word: str
) -> None:
    ip.error, ip.stderr = error, stderr
    with pytest.raises(LinkLocalError, match=word) as refused:
        async with link_local_address("br0"):
            raise AssertionError("it is not there")
    assert refused.value.interface == "br0"
