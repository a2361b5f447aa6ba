"""The link-local address 169.254.169.254 on an interface of this machine while the service runs. Needs root."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from forewarn.core.base_error import BaseError
from forewarn.core.duration import format_duration
from forewarn.process import run_process

ADDRESS = "169.254.169.254"
PORT = 80

TIME_LIMIT = timedelta(seconds=10)
"""How long a run of `ip` may take."""


class LinkLocalError(BaseError):
    """The address cannot be added to the interface."""

    template = f"cannot add {ADDRESS} to interface {{interface}}: {{why}}"
    interface: str
    why: str


@asynccontextmanager
async def link_local_address(interface: str) -> AsyncIterator[None]:
    """Add the address to the interface for the duration of the context, unless the interface already has it."""
    if ADDRESS in await _addresses(interface):
        yield
        return
    await _ip(interface, "address", "add", f"{ADDRESS}/32", "dev", interface)
    try:
        yield
    finally:
        await _ip(interface, "address", "delete", f"{ADDRESS}/32", "dev", interface)


class _AddressInfo(msgspec.Struct):
    local: str = ""


class _Interface(msgspec.Struct):
    addr_info: list[_AddressInfo] = []


async def _addresses(interface: str) -> set[str]:
    output = await _ip(interface, "-json", "-4", "address", "show", "dev", interface)
    found = msgspec.json.decode(output or "[]", type=list[_Interface])
    return {info.local for each in found for info in each.addr_info}


async def _ip(interface: str, *arguments: str) -> str:
    try:
        result = await run_process(["ip", *arguments], os.environ, time_limit=TIME_LIMIT)
    except FileNotFoundError:
        raise LinkLocalError(interface, "the program `ip` is missing; install iproute2") from None
    except TimeoutError:
        raise LinkLocalError(interface, f"`ip` did not finish within {format_duration(TIME_LIMIT)}") from None
    if result.code != 0:
        why = result.stderr.strip()
        raise LinkLocalError(interface, f"{why}; this needs root" if "permitted" in why else why)
    return result.stdout
