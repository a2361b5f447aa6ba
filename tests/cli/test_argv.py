"""Redaction of tokens in the command line that other users can read.

Processes: the system shows the arguments of a process.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.cli.argv import _tokens


def test_tokens_are_found_in_every_form() -> None:
    assert list(_tokens(["vm", "--token", "a", "--token=b", "--token-file", "c", "--token"])) == ["a", "b", ""]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc")
@pytest.mark.process
def test_token_on_the_command_line_is_not_in_the_process_list() -> None:
    """The program reads stdin while the test reads its command line."""
    program = (
        "import sys; from forewarn.cli.argv import redact_tokens; redact_tokens(sys.argv); print(flush=True); input()"
    )
    arguments = [sys.executable, "-c", program, "--token", "fw_secret", "--token=fw_other", "vm"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        process.stdin.write(b"\n")
        process.stdin.close()
    assert shown[3:-1] == [b"--token", b"xxxxxxxxx", b"--token=xxxxxxxx", b"vm"]
