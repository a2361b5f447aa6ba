"""A real DHCP server in a network namespace."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.namespaces.network import NetworkNamespace, why_not
from tests.support.emulator import GUARD

IS_READY = "DHCP, sockets bound exclusively to interface"


def why_no_dnsmasq() -> str | None:
    """Return what is missing to run dnsmasq, and how to install it."""
    if shutil.which("dnsmasq") is None:
        return "the program dnsmasq is missing: install dnsmasq-base"
    return why_not()


class Dnsmasq:
    """A running server and its output."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._said: list[str] = []

    def wait_until_ready(self) -> None:
        """Read its output until it is ready."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            if IS_READY in line:
                return
        raise AssertionError(f"dnsmasq has not started: {''.join(self._said)}")

    def end(self) -> list[str]:
        """Stop it, and return the types of the received and sent messages, in order."""
        self._process.terminate()
        _, rest = self._process.communicate(timeout=GUARD)
        return [
            word.partition("(")[0] for line in rest.splitlines() for word in line.split() if word.startswith("DHCP")
        ]


@contextmanager
def dnsmasq(host: NetworkNamespace, bridge: str, addresses: str, *options: str) -> Iterator[Dnsmasq]:
    """Run dnsmasq on a bridge, offering addresses and DHCP options; it reads no configuration and keeps no leases."""
    command = [
        *host.within,
        *("dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--pid-file="),
        *("--user=root", "--port=0", "--leasefile-ro", "--no-ping", "--dhcp-authoritative"),
        *(f"--interface={bridge}", "--bind-interfaces", f"--dhcp-range={addresses}"),
        *(f"--dhcp-option={option}" for option in options),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            running = Dnsmasq(process)
            running.wait_until_ready()
            yield running
        finally:
            process.kill()
