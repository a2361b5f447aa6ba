"""The conformance kit works in a plain install, without the server's packages."""

import subprocess
import sys

import pytest

from tests.repository.test_contents import SERVER_PARTS
from tests.testing.conformance.mock import MockEndpoint, run_mock

pytestmark = pytest.mark.process

PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({SERVER_PARTS!r}))
sys.argv = ["forewarn", "conformance", *sys.argv[1:]]
from forewarn.cli import main
try:
    main()
finally:
    server = ("fleet", "guest", "operator", "store", "platform", "compose")
    loaded = [name for name in sys.modules if name.startswith(tuple(f"forewarn.{{part}}" for part in server))]
    assert loaded == [], loaded
"""


def test_kit_runs_without_extras() -> None:
    with run_mock(MockEndpoint()) as url:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, url, "--pace", "10000"], capture_output=True, text=True, check=False
        )
    assert ended.returncode == 0, ended.stderr
    assert "0 wrong" in ended.stderr
