"""A program that starts `forewarn serve` again and again, by fork: everything is loaded, so each start is quick.

A line on stdin is a directory with a settings file; the answer is the process id of the service. The next line, an
empty one, ends the service with SIGKILL; the answer is its exit status. The log of the service goes to stderr.
"""

import os
import signal
import sys
from pathlib import Path

import forewarn.cli.process.serve_main
import forewarn.compose.operators
import forewarn.operator.app  # noqa: F401 - these are loaded once, for all services
from forewarn.cli import main


def serve(directory: Path) -> None:
    """Become `forewarn serve`."""
    os.chdir(directory)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.argv = ["forewarn", "serve"]
    main()


def answer(number: int) -> None:
    """Write a number."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            try:
                serve(Path(line.strip()))
            finally:
                os._exit(1)
        answer(process)
        sys.stdin.readline()
        os.kill(process, signal.SIGKILL)
        answer(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
