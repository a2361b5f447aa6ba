"""The metadata endpoint: parse its URL; find it by argument, FOREWARN_ENDPOINT or the link-local address."""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from forewarn.client.errors import NotAnEndpoint

LINK_LOCAL = "169.254.169.254"
"""The address of the metadata service in every virtual network."""

VARIABLE = "FOREWARN_ENDPOINT"

_ENDPOINT = re.compile(
    r"(?:http://)?(?:(?P<name>[A-Z0-9._-]{1,253})|\[(?P<ipv6>[A-F0-9:.]{2,45}(?:%[A-Z0-9._-]{1,64})?)\])(?::(?P<port>\d{1,5}))?(?P<path>/vm(?:/[A-Z0-9._-]+){1,2})?/?",
    re.ASCII | re.IGNORECASE,
)
_LAST_PORT = 65535


class Endpoint(NamedTuple):
    """Host and port of the metadata service. Connections never use a proxy.

    `path` precedes the path of every request. It names the VM on a port of the emulator that serves all VMs.
    """

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}{self.path}" if self.port == 80 else f"http://{host}:{self.port}{self.path}"


def resolve_endpoint(given: str | None, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Return the given endpoint, else that of FOREWARN_ENDPOINT, else the link-local one."""
    return parse_endpoint(given if given is not None else environ.get(VARIABLE) or LINK_LOCAL)


def parse_endpoint(text: str) -> Endpoint:
    """Parse `host`, `host:port` or an http URL, without a path except `/vm/…`. Raises NotAnEndpoint."""
    found = _ENDPOINT.fullmatch(text.strip())
    port = int(found["port"] or 80) if found is not None else 0
    if found is None or not 0 < port <= _LAST_PORT:
        raise NotAnEndpoint(text)
    return Endpoint(found["name"].lower() if found["name"] else found["ipv6"], port, found["path"] or "")
