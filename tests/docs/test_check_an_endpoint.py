"""The conformance kit guide: its commands run, and its table matches the kit's output."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.testing.service import Forewarn
from tests.docs.console import steps
from tests.testing.conformance.mock import MockEndpoint, MockRequest, run_mock

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs/howto/check-an-endpoint.md"
PROGRAM = Path(sys.executable).parent / "forewarn"
SHOWN_URL, SHOWN_EVENT = "http://127.0.0.1:8180", "602D9444-D2CD-49C7-8624-8643E7171297"


class KnowsOnePathOnly(MockEndpoint):
    """The mock of the page: it has no events, and its paths are case-sensitive."""

    def __init__(self) -> None:
        super().__init__()
        self.events.clear()

    def resolve_path(self, asked: MockRequest) -> list[str] | None:
        is_exact = asked.path == asked.path.lower() and not asked.path.endswith("/")
        return super().resolve_path(asked) if is_exact else None


def run(command: str, directory: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    typed = re.sub(r"\bforewarn (?=\w)", f"{shlex.quote(str(PROGRAM))} ", command)
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", typed],
        cwd=directory,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    with Forewarn() as forewarn:
        event = forewarn.schedule("Reboot", "web-0")
        environ = forewarn.environment | {"FOREWARN_PACE": "1000"}
        commands = [step.command for step in steps(PAGE)]
        assert len(commands) == 9
        for command in commands:
            typed = command.replace(SHOWN_URL, forewarn.vm("web-0").url).replace(SHOWN_EVENT, event.id)
            ended = run(typed, tmp_path, environ)
            assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
        assert event.state == "Started"
    assert (tmp_path / "conformance.xml").is_file()


def test_table_matches_the_output_of_the_kit(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    with run_mock(KnowsOnePathOnly()) as url:
        ended = run(f"forewarn conformance {url} --pace 1000", tmp_path, {})
    assert ended.returncode == 1
    printed = [re.split(r"  +", line) for line in ended.stdout.splitlines()]
    missing = [line for line in shown.splitlines() if re.split(r"  +", line) not in printed]
    assert missing == []


@pytest.mark.parametrize("word", ["wrong", "differs", "not checked"])
def test_every_finding_is_explained(word: str) -> None:
    assert f"- **{word}**: " in PAGE.read_text(encoding="utf-8")
