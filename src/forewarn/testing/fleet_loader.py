"""Fleets for tests: the demonstration fleet, a fleet file, or a list of VM names."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from forewarn.api.fleet_file import demonstration_fleet, read_fleet, read_fleet_file
from forewarn.compose import FleetLoader
from forewarn.core.scope import ScopeKind
from forewarn.settings.file_reader import FileValue, read_toml_file

FleetLike = str | Path | Mapping[str, object] | Sequence[str] | None
"""None for the demonstration fleet; the text, the path or the parsed content of a fleet file; or names of VMs."""

INLINE = "fleet"
"""The file name that messages show for a fleet that was not read from a file."""


def fleet_reader(fleet: FleetLike) -> FleetLoader:
    """Return the function that loads the fleet. A file is read now, so that a missing one is the caller's error."""
    match fleet:
        case None:
            return demonstration_fleet
        case Path():
            return partial(read_fleet, read_toml_file(fleet))
        case str():
            return partial(read_fleet_file, fleet, file=INLINE)
        case Mapping():
            return partial(read_fleet, FileValue(INLINE, "", fleet))
        case _:
            return partial(read_fleet, FileValue(INLINE, "", _fleet_of_names(fleet)))


def _fleet_of_names(names: Sequence[str]) -> dict[str, object]:
    """Return the content of a fleet file for these VMs: `web/web-0` is in an availability set, `db-0` is standalone.

    Each VM of a set has its own update domain, so that maintenance affects one VM at a time.
    """
    scopes: dict[str, dict[str, object]] = {}
    sets: dict[str, list[dict[str, object]]] = {}
    for name in names:
        scope, slash, vm = name.rpartition("/")
        if not slash:
            scopes[vm] = {"name": vm, "kind": ScopeKind.STANDALONE.value}
            continue
        entries = sets.setdefault(scope, [])
        entries.append({"name": vm, "update_domain": len(entries)})
        scopes[scope] = {"name": scope, "kind": ScopeKind.AVAILABILITY_SET.value, "vms": entries}
    return {"scopes": list(scopes.values())}
