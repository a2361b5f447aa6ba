"""What a running service takes over when its settings are read again, and what waits for a restart."""

from typing import NamedTuple

import msgspec

from forewarn.settings.keys import Settings, values
from forewarn.settings.values import PlatformName


class Changed(NamedTuple):
    """Keys whose values differ: those that are taken over, and those that need a restart."""

    live: tuple[str, ...]
    after_restart: tuple[str, ...]


def compare(running: Settings, read: Settings) -> Changed:
    """Tell what has changed since the service was started or last read its settings."""
    before, after, taken = (dict(values(each)) for each in (running, read, taken_over(running, read)))
    changed = [key for key in after if after[key] != before[key]]
    return Changed(
        live=tuple(key for key in changed if taken[key] == after[key]),
        after_restart=tuple(key for key in changed if taken[key] != after[key]),
    )


def taken_over(running: Settings, read: Settings) -> Settings:
    """Return the settings that a running service goes on with: what it can take over of those that were read."""
    has_tls = (running.tls.certificate is not None, read.tls.certificate is not None)
    return msgspec.structs.replace(
        running,
        guest=msgspec.structs.replace(running.guest, requests_per_second=read.guest.requests_per_second),
        policy=read.policy,
        gates=read.gates,
        campaigns=read.campaigns,
        command=running.command if _would_have_no_program(running, read) else read.command,
        # Whether operators are served with TLS is a matter of their listener, which stays.
        tls=read.tls if all(has_tls) else running.tls,
        log=read.log,
    )


def _would_have_no_program(running: Settings, read: Settings) -> bool:
    """Tell whether settings for another platform, which waits for a restart, name no program for the one that runs."""
    return running.platform is PlatformName.COMMAND and not read.command.program
