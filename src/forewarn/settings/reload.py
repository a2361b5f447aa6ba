"""Settings reload: which changes a running service applies, and which need a restart."""

from typing import NamedTuple

import msgspec

from forewarn.settings.loader import iter_values
from forewarn.settings.schema import Settings
from forewarn.settings.types import PlatformName


class SettingsChange(NamedTuple):
    """Keys whose values differ: those that the service applies, and those that need a restart."""

    live: tuple[str, ...]
    after_restart: tuple[str, ...]


def compare_settings(running: Settings, read: Settings) -> SettingsChange:
    """Return what has changed since the service was started or last reloaded."""
    before, after, taken = (dict(iter_values(each)) for each in (running, read, merge_reloadable(running, read)))
    changed = [key for key in after if after[key] != before[key]]
    return SettingsChange(
        live=tuple(key for key in changed if taken[key] == after[key]),
        after_restart=tuple(key for key in changed if taken[key] != after[key]),
    )


def merge_reloadable(running: Settings, read: Settings) -> Settings:
    """Return the settings of the running service after a reload: its own, with the new values of reloadable keys."""
    has_tls = (running.tls.certificate is not None, read.tls.certificate is not None)
    return msgspec.structs.replace(
        running,
        guest=msgspec.structs.replace(running.guest, requests_per_second=read.guest.requests_per_second),
        policy=read.policy,
        gates=read.gates,
        campaigns=read.campaigns,
        command=running.command if _lacks_program(running, read) else read.command,
        # The operator listener stays as it is, and with it the choice between TLS and plain HTTP.
        tls=read.tls if all(has_tls) else running.tls,
        log=read.log,
    )


def _lacks_program(running: Settings, read: Settings) -> bool:
    """Return whether the new settings are for another platform, and so have no program for the running one."""
    return running.platform is PlatformName.COMMAND and not read.command.program
