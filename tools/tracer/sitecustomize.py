"""Record which modules of a package run code, phase by phase.

Python imports a module of this name at start, so every Python process that has this folder on its PYTHONPATH is
traced, including processes that a traced process starts or executes. `tools/trace_modules.py` sets the variables below
and explains what is counted.
"""

import inspect
import mmap
import os
import sys
import threading
import time
from collections import defaultdict
from types import FrameType

DIRECTORY = "TRACE_MODULES_DIRECTORY"
"""The folder with the records and the file `phase`, whose one byte is the number of the current phase."""

PACKAGE = "TRACE_MODULES_PACKAGE"
"""The folder of the package whose modules are recorded."""

PROCESS = "TRACE_MODULES_PROCESS"
"""The name of the traced process and of its file of records."""

IMPORT_SYSTEM = "<frozen importlib._bootstrap_external>"


def trace(directory: str, package: str, process: str) -> None:
    """Append a line to the file of records whenever a function of a module runs for the first time in a phase."""
    descriptor = os.open(f"{directory}/phase", os.O_RDONLY)
    current = mmap.mmap(descriptor, 1, access=mmap.ACCESS_READ)
    os.close(descriptor)
    prefix = package + os.sep
    done: defaultdict[int, set[str]] = defaultdict(set)

    def record(frame: FrameType, _event: str, _argument: object) -> None:
        phase = current[0]
        if not phase:
            return
        path = frame.f_code.co_filename
        if path in done[phase]:
            return
        if path.startswith(prefix):
            # The bodies of modules and classes are not optimized code: they run when a module is imported.
            if not frame.f_code.co_flags & inspect.CO_OPTIMIZED or is_importing(frame):
                return
            line = f"{time.monotonic_ns()}\t{phase}\t{path.removeprefix(prefix)}\t{frame.f_code.co_qualname}\n"
            append(f"{directory}/{process}", line)
        done[phase].add(path)

    sys.setprofile(record)
    threading.setprofile(record)


def is_importing(frame: FrameType) -> bool:
    """Whether the call comes from the body of a module that is being imported."""
    caller: FrameType | None = frame
    while caller is not None:
        if caller.f_code.co_filename == IMPORT_SYSTEM and caller.f_code.co_name == "exec_module":
            return True
        caller = caller.f_back
    return False


def append(path: str, line: str) -> None:
    # Open the file for each of the few lines: a program may close every file that it has not opened itself.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


if DIRECTORY in os.environ:
    trace(os.environ[DIRECTORY], os.environ[PACKAGE], os.environ[PROCESS])
