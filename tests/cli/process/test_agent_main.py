"""The agent's process imports only what the agent needs."""

import subprocess
import sys

import pytest


@pytest.mark.process
def test_agent_process_imports_no_command_line_modules() -> None:
    script = "import sys, forewarn.cli.process.agent_main\nprint(*{'click', 'rich'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.stdout.split(), ended.stderr) == ([], "")


@pytest.mark.process
def test_command_of_the_agent_loads_no_settings_of_the_service() -> None:
    """The process of `forewarn agent run` keeps everything that its command has imported."""
    unused = {"difflib", "forewarn.settings.schema", "forewarn.core.scope"}
    script = (
        f"import sys, forewarn.cli.commands.agent, forewarn.cli.process.agent_main\nprint(*{unused} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.stdout.split(), ended.stderr) == ([], "")
