#!/usr/bin/env python3
"""A batch job that can continue on another VM: job.py DIRECTORY, which all workers share.

One worker at a time holds the job's lock; the others wait. On SIGTERM it writes a checkpoint, releases the lock and
exits; the next worker continues from the checkpoint. JOB_STEPS is the number of steps, JOB_PAUSE the minimum duration
of a step in seconds. The worker removes the file JOB_PID when it exits, so that no other process is taken for it.
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
    """Wait for the job, then work on it until it is finished or SIGTERM arrives."""
    # A blocked signal stays pending until sigtimedwait reads it, so it interrupts no step.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with signed_off(), (directory / "job.lock").open("w") as lock:
        if has_lock(lock.fileno()) and not (directory / "result.json").exists():
            work(directory)


def work(directory: Path) -> None:
    """Continue from the checkpoint, and write a new one or the result."""
    job = load(directory / "checkpoint.json")
    begun_at = job["step"]
    while True:
        job["digest"] = hashlib.sha256(f"{job['digest']} {job['step']}".encode()).hexdigest()
        job["step"] += 1
        save(directory / "progress.json", {"worker": WORKER, "step": job["step"]})
        if job["step"] == STEPS or is_stopping():
            break
    job["done"].append({"worker": WORKER, "from": begun_at, "to": job["step"]})
    save(directory / ("result.json" if job["step"] == STEPS else "checkpoint.json"), job)


def is_stopping() -> bool:
    """Wait for the pause between two steps, and return whether SIGTERM has arrived."""
    return signal.sigtimedwait({signal.SIGTERM}, PAUSE) is not None


def has_lock(lock: int) -> bool:
    """Wait until no other worker holds the lock. Return False if SIGTERM arrives first."""
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if is_stopping():
            return False


def load(path: Path) -> dict[str, Any]:
    """Read the checkpoint."""
    if not path.exists():
        return {"step": 0, "digest": "", "done": []}
    job: dict[str, Any] = json.loads(path.read_text())
    return job


def save(path: Path, what: dict[str, Any]) -> None:
    """Write a file atomically and durably."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(what, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


@contextlib.contextmanager
def signed_off() -> Iterator[None]:
    """Remove the PID file of this worker when it exits."""
    try:
        yield
    finally:
        Path(os.environ["JOB_PID"]).unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
