"""Settings reload: which changes a running service applies, and which need a restart."""

from typing import NamedTuple

import msgspec

from forewarn.settings.loader import iter_values
from forewarn.settings.schema import Settings
from forewarn.settings.types import PlatformName


class SettingsChange(NamedTuple):
    """Keys whose values differ: those that are taken over, and those that need a restart."""

    live: tuple[str, ...]
    after_restart: tuple[str, ...]


def compare_settings(running: Settings, read: Settings) -> SettingsChange:
    """Tell what has changed since the service was started or last read its settings."""
    before, after, taken = (dict(iter_values(each)) for each in (running, read, merge_reloadable(running, read)))
    changed = [key for key in after if after[key] != before[key]]
    return SettingsChange(
        live=tuple(key for key in changed if taken[key] == after[key]),
        after_restart=tuple(key for key in changed if taken[key] != after[key]),
    )


def merge_reloadable(running: Settings, read: Settings) -> Settings:
    """Return the settings that a running service goes on with: what it can take over of those that were read."""
    has_tls = (running.tls.certificate is not None, read.tls.certificate is not None)
    return msgspec.structs.replace(
        running,
        guest=msgspec.structs.replace(running.guest, requests_per_second=read.guest.requests_per_second),
        policy=read.policy,
        gates=read.gates,
        campaigns=read.campaigns,
        command=running.command if _lacks_program(running, read) else read.command,
        # Whether operators are served with TLS is a matter of their listener, which stays.
        tls=read.tls if all(has_tls) else running.tls,
        log=read.log,
    )


def _lacks_program(running: Settings, read: Settings) -> bool:
    """Tell whether settings for another platform, which waits for a restart, name no program for the one that runs."""
    return running.platform is PlatformName.COMMAND and not read.command.program
