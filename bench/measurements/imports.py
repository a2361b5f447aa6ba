"""Cost of importing the client library, compared with a program that imports only msgspec."""

import os
import subprocess
import sys
import time
from statistics import median
from typing import NamedTuple

import msgspec

from bench.figures import rounded
from bench.result import BenchmarkResult
from bench.workspace import Workspace

TARGET_MS = 60.0

BARE = "import msgspec"
CLIENT = "import msgspec, forewarn.client"
EVERYTHING = "import msgspec, forewarn.client, forewarn.client.aio, forewarn.client.discovery, http.client, logging"
"""All imports of a program that uses the whole library; most of them are lazy."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Number of programs of each kind."""

    rounds: int = 41


FULL = Size()
QUICK = Size(rounds=5)


class Took(NamedTuple):
    """Duration of a whole process, in milliseconds."""

    wall: float
    processor: float


class Round(NamedTuple):
    """One program of each kind, one after the other: noise in a round mostly affects all of them."""

    bare: Took
    client: Took
    everything: Took


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Start programs with and without the library, alternately."""
    _one_round()  # the first one may have to compile
    rounds = [_one_round() for _ in range(size.rounds)]
    bare = median(each.bare.wall for each in rounds)
    client = median(each.client.wall - each.bare.wall for each in rounds)
    processor = median(each.client.processor - each.bare.processor for each in rounds)
    everything = median(each.everything.wall - each.bare.wall for each in rounds)
    workspace.log(f"    bare {bare:.0f} ms, client +{client:.0f} ms, everything +{everything:.0f} ms")
    return BenchmarkResult(
        what="`import forewarn.client`, above bare Python with msgspec",
        measured=f"+{client:.0f} ms, +{processor:.0f} ms of a processor (bare: {bare:.0f} ms)",
        target=f"≤ +{TARGET_MS:.0f} ms",
        met=client <= TARGET_MS,
        figures={
            "bare_ms": rounded((each.bare.wall for each in rounds), 1),
            "client_ms": rounded((each.client.wall for each in rounds), 1),
            "everything_ms": rounded((each.everything.wall for each in rounds), 1),
            "client_more_ms": round(client, 1),
            "client_more_processor_ms": round(processor, 1),
            "everything_more_ms": round(everything, 1),
        },
        note=f"median of the differences within {size.rounds} rounds, each of whole processes, from start to end; "
        f"with all that the library puts off until it is needed: +{everything:.0f} ms",
    )


def _one_round() -> Round:
    return Round(*map(_took, (BARE, CLIENT, EVERYTHING)))


def _took(statement: str) -> Took:
    began_at = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", statement])
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - began_at
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{statement!r} ended with {process.returncode}")
    return Took(wall * 1000, (usage.ru_utime + usage.ru_stime) * 1000)
