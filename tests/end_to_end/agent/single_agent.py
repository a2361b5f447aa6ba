"""One real agent process with a fake endpoint and a hook that logs its calls."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from forewarn.wire.http_date import format_http_date
from tests.support.fake_endpoint import FakeEndpoint, run_fake_endpoint
from tests.support.processes import Program, free_ports, wait_until

FOREWARN = Path(sys.executable).parent / "forewarn"
NAME = "web_0"

SETTINGS = """\
interval = "0.1s"
state = "{home}/state"

[http]
listen = "127.0.0.1:{port}"

[log]
level = "debug"
format = "json"

{more}

[handlers.hook]
kind = "exec"
prepare = ["{hook}", "prepare"]
recover = ["{hook}", "recover"]
retries = 0

[[rules]]
handlers = {handlers}
"""

HOOK = """\
#!/bin/sh
# One line per run, which is there in full or not at all.
echo "$1 $EVENT_ID $FOREWARN_ATTEMPT ${FOREWARN_DEADLINE:-none}" >>"$HOOK_LOG"
if [ -n "$HOOK_FAILS" ]; then exit 1; fi
"""


def event(id_: str, *resources: str, **more: Any) -> dict[str, Any]:
    """Return an event in wire format; by default a reboot in an hour."""
    return {
        "EventId": id_,
        "EventStatus": "Scheduled",
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": resources or (NAME,),
        "NotBefore": format_http_date(datetime.now(UTC) + timedelta(hours=1)),
        "Description": "Host maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
        **more,
    }


class SingleAgent:
    """The agent, its endpoint, and the hook's log."""

    def __init__(self, home: Path, endpoint: FakeEndpoint, agent: Program, port: int) -> None:
        self.home = home
        self.endpoint = endpoint
        self.agent = agent
        self.port = port

    @property
    def hook_runs(self) -> list[str]:
        """The runs of the hook in order: phase and event."""
        return [" ".join(line.split()[:2]) for line in self.hook_lines]

    @property
    def hook_lines(self) -> list[str]:
        """The lines that the hook wrote."""
        path = self.home / "hook.log"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_hook_runs(self, *runs: str) -> None:
        """Wait until the hook has run for each of these."""
        wait_until(lambda: set(runs) <= set(self.hook_runs), f"{', '.join(runs)} to be run")


@contextmanager
def run_single_agent(
    home: Path, *, more: str = "", handlers: tuple[str, ...] = ("hook",), environ: Mapping[str, str] | None = None
) -> Iterator[SingleAgent]:
    """Run an agent while the context is open. It must still be running at the end."""
    hook = home / "hook"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    (port,) = free_ports(1)
    names = "[" + ", ".join(f'"{name}"' for name in handlers) + "]"
    file = home / "agent.toml"
    file.write_text(SETTINGS.format(home=home, port=port, more=more, hook=hook, handlers=names))
    with run_fake_endpoint(NAME) as said:
        variables = {
            "FOREWARN_ENDPOINT": said.url,
            "HOOK_LOG": str(home / "hook.log"),
            "HOOK_FAILS": "",
            **(environ or {}),
        }
        agent = Program([str(FOREWARN), "agent", "run", "--config", str(file)], home / "agent.log", variables)
        agent.start()
        try:
            yield SingleAgent(home, said, agent, port)
            assert agent.is_running, agent.output()
        finally:
            agent.kill()
