"""What a running service takes over when its settings are read again, and what waits for a restart."""

from typing import NamedTuple

from forewarn.settings.keys import KEYS, Settings, values

LIVE = frozenset(
    key for key in KEYS if key.startswith(("policy.", "command.", "tls.", "log.")) or key == "guest.requests_per_second"
)
"""The keys that a running service can take over."""


class Changed(NamedTuple):
    """Keys whose values differ: those that are taken over, and those that need a restart."""

    live: tuple[str, ...]
    after_restart: tuple[str, ...]


def compare(running: Settings, read: Settings) -> Changed:
    """Tell what has changed since the service was started or last read its settings."""
    before = dict(values(running))
    changed = [key for key, value in values(read) if value != before[key]]
    return Changed(
        live=tuple(key for key in changed if key in LIVE),
        after_restart=tuple(key for key in changed if key not in LIVE),
    )
