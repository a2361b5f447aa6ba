"""Running measurements one after the other; one that breaks does not take the others with it."""

import traceback
from collections.abc import Sequence

from bench.finding import Finding
from bench.measurements import MEASUREMENTS
from bench.workplace import Workplace


def run_all(
    names: Sequence[str], place: Workplace, *, quick: bool = False
) -> tuple[dict[str, Finding], dict[str, str]]:
    """Return what was found, and why the rest was not, each by the measurement's name."""
    findings: dict[str, Finding] = {}
    broken: dict[str, str] = {}
    for number, name in enumerate(names, start=1):
        place.say(f"[{number}/{len(names)}] {name}")
        measurement = MEASUREMENTS[name]
        try:
            finding = (measurement.quick if quick else measurement.full)(place)
        except Exception as error:  # noqa: BLE001 - whatever it is, the table has to say it
            place.say(traceback.format_exc())
            broken[name] = f"{type(error).__name__}: {error}"
        else:
            place.say(f"    {finding.measured}")
            findings[name] = finding
    return findings, broken
