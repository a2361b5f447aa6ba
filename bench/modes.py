"""The settings of JetStream that each row of a cluster is measured with."""

from collections.abc import Callable
from typing import Generic, TypeVar

from bench.result import Figure

SYNCED = "sync_interval: always"
"""The setting with which each server writes to its disk before it confirms."""

MODES = {"default": "", "synced": SYNCED}

T = TypeVar("T")


class ModeResults(Generic[T]):
    """What a measurement has found in each mode."""

    def __init__(self, measure: Callable[[str], T]) -> None:
        self.by_mode = {mode: measure(mode) for mode in MODES}

    def describe(self, describe: Callable[[T], str]) -> str:
        """Return a text with the modes side by side."""
        return ", ".join(f"{mode} {describe(found)}" for mode, found in self.by_mode.items())

    def all(self, is_met: Callable[[T], bool]) -> bool:
        """Return whether all modes meet the target."""
        return all(map(is_met, self.by_mode.values()))

    def figures(self, **figures: Callable[[T], Figure]) -> dict[str, Figure]:
        """Return each figure under its name, after that of the mode."""
        return {
            f"{mode}_{name}": figure(found) for mode, found in self.by_mode.items() for name, figure in figures.items()
        }
