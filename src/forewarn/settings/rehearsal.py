"""Rehearsal: the settings of a service for real VMs, as far as they can be used in the emulator.

What decides about events is taken. What reaches the outside, or belongs to the running service, is left out.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from forewarn.settings.errors import SettingsConflict
from forewarn.settings.load import load_settings
from forewarn.settings.loader import Precedence, build_settings, iter_values
from forewarn.settings.schema import EMULATOR, PRODUCTION, Settings
from forewarn.settings.types import PlatformName

TAKEN = ("guest", "policy", "simulated", "journal", "gates", "network")
"""The keys and sections that a rehearsal takes from the production file."""

SUBSTITUTES = {
    "platform": "simulated",
    "command": "never run",
    "campaigns": "never called",
}
"""What stands for keys and sections that are left out, where it is not the emulator's own value."""


class Rehearsal(NamedTuple):
    """A rehearsal of a production file: what it uses, and how its gates answer."""

    file: Path
    taken: tuple[str, ...]
    """Keys that the file sets and the rehearsal uses."""
    left_out: tuple[str, ...]
    gates: tuple[str, ...]
    closed_gates: frozenset[str]

    def messages(self) -> tuple[str, ...]:
        """Return what the user must know at the start."""
        left = (f"{key} ({why})" if (why := SUBSTITUTES.get(key.partition(".")[0])) else key for key in self.left_out)
        gates = (f"{gate} ({'closed' if gate in self.closed_gates else 'open'})" for gate in self.gates)
        taken = ", ".join(self.taken) or "nothing, because it sets nothing else"
        return (
            f"Rehearsal of {self.file}: no program, gate, webhook or platform of it is called.",
            f"Taken from it: {taken}. Other keys of policy, guest, simulated and journal are as in `forewarn serve`.",
            f"Left out: {', '.join(left) or 'nothing'}.",
            f"Gates, simulated: {', '.join(gates) or 'none'}.",
        )


def load_rehearsal(
    file: Path, *, flags: Mapping[str, object], closed_gates: Collection[str] = ()
) -> tuple[Settings, Rehearsal]:
    """Load a production file for the emulator; `flags` are those of `forewarn up`. Variables are not read.

    Without a variable or a second file, no setting of the machine's real service can enter by accident.
    """
    production = load_settings(PRODUCTION, flags={"platform": PlatformName.SIMULATED.value}, environ={}, file=file)
    emulator = load_settings(EMULATOR, flags={"ephemeral": True, **flags} if "data" not in flags else flags, environ={})
    if emulator.sources["fleet"].precedence is Precedence.PRESET:
        raise SettingsConflict(
            "--like needs --fleet FILE, the fleet to rehearse with: `forewarn fleet export FILE` writes it"
        )
    values = {
        key: value
        for key, value in iter_values(production.settings)
        if key.partition(".")[0] in TAKEN and emulator.sources[key].precedence is Precedence.PRESET
    }
    gates = tuple(gate.name for gate in production.settings.gates)
    if unknown := sorted(set(closed_gates) - set(gates)):
        raise SettingsConflict(
            f"--closed-gate {unknown[0]}: {file} has no such gate, only {', '.join(gates) or 'none'}"
        )
    in_file = [key for key, source in production.sources.items() if source.precedence is Precedence.FILE]
    in_file += ["platform"] if "platform" not in in_file else []
    rehearsal = Rehearsal(
        file=file,
        taken=tuple(key for key in in_file if key.partition(".")[0] in TAKEN),
        left_out=tuple(key for key in in_file if key.partition(".")[0] not in TAKEN),
        gates=gates,
        closed_gates=frozenset(closed_gates),
    )
    return build_settings(emulator.settings, values), rehearsal
