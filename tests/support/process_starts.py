"""Record every process that this process starts, so that a fast run finds tests without the mark `process`."""

import multiprocessing.util
import sys
from typing import Any

EVENTS = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
_started: list[str] = []


def watch() -> None:
    """Start recording. Python's audit events cover every start except those by multiprocessing, which is wrapped."""
    sys.addaudithook(_record)
    spawn = multiprocessing.util.spawnv_passfds

    def recorded(path: bytes, args: Any, passfds: Any) -> int:
        _started.append(f"multiprocessing: {args}")
        return spawn(path, args, passfds)

    multiprocessing.util.spawnv_passfds = recorded


def take() -> list[str]:
    """Return the processes started since the last call."""
    taken = _started.copy()
    del _started[: len(taken)]
    return taken


def _record(event: str, args: tuple[object, ...]) -> None:
    if event in EVENTS:
        _started.append(f"{event}: {args[:2]}")
