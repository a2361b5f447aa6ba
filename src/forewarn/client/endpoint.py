"""Where the metadata service is."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from forewarn.client.errors import NotAnEndpoint

LINK_LOCAL = "169.254.169.254"
"""The address of the metadata service in every virtual network."""

VARIABLE = "FOREWARN_ENDPOINT"

_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,253}")


class Endpoint(NamedTuple):
    """A host and a port, which are spoken to directly: never through a proxy."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}" if self.port == 80 else f"http://{host}:{self.port}"


def endpoint_of(given: str | None, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """Take the endpoint that was given, or that of FOREWARN_ENDPOINT, or the link-local one."""
    return read_endpoint(given if given is not None else environ.get(VARIABLE) or LINK_LOCAL)


def read_endpoint(text: str) -> Endpoint:
    """Read `host`, `host:port` or an http URL without a path; raise NotAnEndpoint for anything else."""
    with suppress(ValueError):
        parts = urlsplit(text if "://" in text else f"http://{text}")
        if _is_plain(parts) and _HOST.fullmatch(parts.hostname or "") and parts.port != 0:
            return Endpoint(parts.hostname or "", parts.port or 80)
    raise NotAnEndpoint(text)


def _is_plain(parts: SplitResult) -> bool:
    nothing_more = not (parts.query or parts.fragment or parts.username or parts.password)
    return parts.scheme == "http" and parts.path in ("", "/") and nothing_more
