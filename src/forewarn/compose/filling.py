"""The fleet with which an empty data directory begins."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from forewarn.api.fleet_file import DEMONSTRATION, Birth, demonstration_fleet, read_fleet_file
from forewarn.api.written import FleetFileError
from forewarn.core.scope import Scope
from forewarn.fleet.filling import fill
from forewarn.fleet.service import Fleet
from forewarn.settings import Settings

LARGEST_FLEET_FILE = 64 * 1024 * 1024

ReadFleet = Callable[[Birth], tuple[Scope, ...]]
"""How whoever starts the service gives it a fleet that is in no file."""

GIVEN = "the fleet that was given"


class Talk(Protocol):
    """Where the service says what it does while it starts."""

    def say(self, sentence: str) -> None:
        """Say something that the user should know."""
        ...

    def not_read(self, source: Path) -> None:
        """Tell that the fleet file is not read, because there is a fleet already."""
        ...

    def filling(self, done: int, total: int) -> None:
        """Tell how many scopes of the fleet file are saved."""
        ...


async def fill_if_empty(fleet: Fleet, settings: Settings, talk: Talk, given: ReadFleet | None = None) -> None:
    """Take the fleet file if there is no fleet yet, or go on with it where a crash has interrupted that.

    What is `given` is taken in its place.
    """
    source = settings.fleet
    if fleet.is_filled:
        if isinstance(source, Path):
            talk.not_read(source)
        return
    birth = Birth(fleet.clock.now(), fleet.new_epoch)
    scopes = given(birth) if given is not None else await asyncio.to_thread(_read_fleet, source, birth)
    by = GIVEN if given is not None else str(source if isinstance(source, Path) else DEMONSTRATION)
    await fill(fleet, scopes, by=by, on_saved=lambda done: talk.filling(done, len(scopes)))


def _read_fleet(source: Path | str | None, birth: Birth) -> tuple[Scope, ...]:
    if source is None:
        return ()
    if not isinstance(source, Path):
        return demonstration_fleet(birth)
    try:
        if source.stat().st_size > LARGEST_FLEET_FILE:
            raise FleetFileError(str(source), "", f"a fleet file has at most {LARGEST_FLEET_FILE >> 20} MiB")
        text = source.read_text(encoding="utf-8")
    except OSError as error:
        raise FleetFileError(str(source), "", f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise FleetFileError(str(source), "", "this is not TOML: it is not even UTF-8") from error
    return read_fleet_file(text, file=str(source), birth=birth)
