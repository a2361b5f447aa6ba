"""The agent guides: their settings and scripts work, and every handler has a guide."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from forewarn.agent.handlers.base import Done, Retry
from forewarn.agent.handlers.env import event_variables
from forewarn.agent.handlers.exec import ExecHandler
from forewarn.agent.handlers.registry import create_handlers
from forewarn.agent.rules import choose_handlers
from forewarn.agent.settings import KINDS, ExecSettings, read_settings
from tests.agent.handlers.handler_contexts import EVENT, NO_NOTES, NOW, PREPARE

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = sorted((DOCS / "howto/agent").glob("*.md"))
PAGES = [*GUIDES, DOCS / "reference/agent.md"]
SNIPPET = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def snippets(page: Path, language: str) -> list[str]:
    return [text for found, text in SNIPPET.findall(page.read_text()) if found == language]


SETTINGS = {f"{page.stem}-{n}": text for page in PAGES for n, text in enumerate(snippets(page, "toml"))}


@pytest.mark.parametrize("text", SETTINGS.values(), ids=SETTINGS)
def test_settings_of_a_guide_are_valid(tmp_path: Path, text: str) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    settings = read_settings(file, {"FOREWARN_AGENT_STATE": str(tmp_path)})
    assert set(create_handlers(settings)) == {handler.name for handler in settings.handlers}
    assert choose_handlers(settings, EVENT).rule is not None, "the guide's own rule matches a Reboot"


def test_every_kind_of_handler_has_a_guide_that_uses_it() -> None:
    used = {
        kind: any(f'kind = "{kind}"' in text for text in snippets(DOCS / f"howto/agent/{kind}.md", "toml"))
        for kind in KINDS
    }
    assert used == {kind: kind != "log" for kind in KINDS}, "the log handler is always there"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The guide's script, installed."""
    (script,) = snippets(DOCS / "howto/agent/exec.md", "sh")
    path = tmp_path / "checkpoint"
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.mark.process
async def test_script_of_the_guide_works_and_can_be_repeated(tmp_path: Path, checkpoint: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "CHECKPOINTS": str(tmp_path / "points")}
    handler = ExecHandler(ExecSettings(name="checkpoint", prepare=(str(checkpoint),)), NO_NOTES, environ=environ)
    assert (await handler.prepare(PREPARE), await handler.prepare(PREPARE)) == (Done(), Done())
    assert [path.name for path in (tmp_path / "points").iterdir()] == [EVENT.id]
    (tmp_path / "points/busy").touch()
    assert await handler.prepare(PREPARE) == Retry("checkpoint ended with 75: a checkpoint is being written")


@pytest.mark.process
def test_script_of_the_guide_is_valid_shell(checkpoint: Path) -> None:
    subprocess.run(["sh", "-n", str(checkpoint)], check=True, timeout=60)


def test_reference_names_every_variable() -> None:
    page = (DOCS / "reference/agent.md").read_text()
    documented = re.findall(
        r"^\| `((?:EVENT|FOREWARN)_\w+)` \|", page.partition("\n## Script interface\n")[2], re.MULTILINE
    )
    assert documented == list(event_variables(PREPARE, NOW))
