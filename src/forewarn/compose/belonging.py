"""Whose data a directory has: what was announced to real VMs is no plaything of the emulator."""

from pathlib import Path

from forewarn.compose.filling import Talk
from forewarn.settings import EMULATOR, PRODUCTION, Preset

MARK = "preset"
"""The file, among the data, that names the preset of the service that used them last."""


class NotTheEmulators(Exception):
    """The emulator was started on the data of a service for real VMs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        super().__init__(
            f"{directory} has the data of a service for real VMs, and the emulator would only pretend to carry their "
            "maintenance out: run `forewarn serve` there, or choose another --data. If the emulator is to have them "
            f"all the same, remove {directory / MARK} first"
        )


def claim(directory: Path, preset: Preset, talk: Talk) -> None:
    """Say in the directory whose data it has from now on. One of which nothing is said belongs to whoever comes.

    To be called by the owner of the directory's lock.
    """
    mark = directory / MARK
    before = mark.read_text(encoding="utf-8").strip() if mark.exists() else ""
    if before == preset.name:
        return
    if before == PRODUCTION.name and preset is EMULATOR:
        raise NotTheEmulators(directory)
    if before:
        talk.say(
            f"The data in {directory} were the {before}'s: its VMs and events are taken for real ones from now on."
        )
    mark.write_text(f"{preset.name}\n", encoding="utf-8")
