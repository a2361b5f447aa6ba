#!/usr/bin/env python3
"""A batch job that can go on elsewhere: job.py DIRECTORY, which all workers share.

One worker at a time has the job, the others wait for it. Told to stop (SIGTERM), it writes down how far it is, lets the
job go and ends; the next worker goes on from there. JOB_STEPS says how much there is to do, JOB_PAUSE how long a step
takes at least, in seconds. The file of JOB_PID is removed at the end: nobody is to be looked for any more.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STEPS = int(os.environ.get("JOB_STEPS", "1000"))
PAUSE = float(os.environ.get("JOB_PAUSE", "0.1"))
WORKER = os.environ.get("JOB_WORKER") or socket.gethostname()


def main(directory: Path) -> None:
    """Wait for the job, do what is left of it, or as much as there is time for."""
    # Blocked, a signal is kept until somebody asks for it: no step is interrupted.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with signed_off(), (directory / "job.lock").open("w") as lock:
        if has_lock(lock.fileno()) and not (directory / "result.json").exists():
            work(directory)


def work(directory: Path) -> None:
    """Go on from the checkpoint, and leave one."""
    job = load(directory / "checkpoint.json")
    begun_at = job["step"]
    while True:
        job["digest"] = hashlib.sha256(f"{job['digest']} {job['step']}".encode()).hexdigest()
        job["step"] += 1
        save(directory / "progress.json", {"worker": WORKER, "step": job["step"]})
        if job["step"] == STEPS or is_told_to_stop():
            break
    job["done"].append({"worker": WORKER, "from": begun_at, "to": job["step"]})
    save(directory / ("result.json" if job["step"] == STEPS else "checkpoint.json"), job)


def is_told_to_stop() -> bool:
    """Wait for the pause between two steps; tell whether there is to be no other one."""
    return signal.sigtimedwait({signal.SIGTERM}, PAUSE) is not None


def has_lock(lock: int) -> bool:
    """Wait until no other worker has the job; False if this one is told to stop before."""
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if is_told_to_stop():
            return False


def load(path: Path) -> dict[str, Any]:
    """Read how far the job is."""
    if not path.exists():
        return {"step": 0, "digest": "", "done": []}
    job: dict[str, Any] = json.loads(path.read_text())
    return job


def save(path: Path, what: dict[str, Any]) -> None:
    """Write a file that is there in full, or as it was before, whatever happens."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(what, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


@contextlib.contextmanager
def signed_off() -> Iterator[None]:
    """Remove the file with this worker's number when it ends."""
    try:
        yield
    finally:
        Path(os.environ["JOB_PID"]).unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
