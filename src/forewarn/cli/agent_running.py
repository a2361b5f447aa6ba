"""Running the agent: its log, signals, and whoever supervises it.

It runs in an interpreter of its own, which takes the place of the one that read the command line: what that needed,
a third of all memory, is of no use to a daemon.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import typer

from forewarn.agent.compose import AgentStartFailed, open_context
from forewarn.agent.daemon import Agent
from forewarn.agent.lock import StateDirectoryError
from forewarn.agent.settings import AgentSettings, read_settings
from forewarn.cli.exits import Exit
from forewarn.cli.logs import TextLines, set_up
from forewarn.cli.output import say
from forewarn.cli.supervisor import Supervisor
from forewarn.client.errors import ClientError
from forewarn.settings import SettingsError

log = logging.getLogger("forewarn.agent")

DRY_RUN = "dry-run"
ENDING = ("SIGTERM", "SIGINT", "SIGHUP")

LONGEST_END = 10.0
"""How many seconds it may take to end everything in order."""


def become_agent(file: Path | None, environ: Mapping[str, str], *, dry_run: bool) -> None:
    """Go on as an agent with settings that are known to be good: the same process, with another program in it."""
    words = [str(file or ""), DRY_RUN if dry_run else ""]
    if sys.platform == "win32" or not sys.executable:
        run_until_told(read_settings(file, environ), dry_run=dry_run)
        return
    os.execve(sys.executable, [sys.executable, "-P", "-m", __name__, *words], dict(environ))  # noqa: S606  # it is ourselves


def main(file: str, mode: str) -> None:
    """Be the agent."""
    try:
        settings = read_settings(Path(file) if file else None, os.environ)
        run_until_told(settings, dry_run=mode == DRY_RUN)
    except SettingsError as error:
        say(f"forewarn: {error}")
        sys.exit(Exit.USAGE)
    except typer.Exit as end:
        sys.exit(end.exit_code)


def run_until_told(settings: AgentSettings, *, dry_run: bool) -> None:
    """Run the agent until it is told to end."""
    lines = set_up(settings.log)
    try:
        asyncio.run(_run(settings, lines, dry_run=dry_run))
    except (AgentStartFailed, ClientError, StateDirectoryError) as error:
        log.critical("cannot start: %s", error)
        raise typer.Exit(Exit.USAGE) from error


async def _run(settings: AgentSettings, lines: TextLines, *, dry_run: bool) -> None:
    stop = asyncio.Event()
    _listen_to_signals(stop)
    supervisor = Supervisor(os.environ)
    async with open_context(settings, hide=lines.hide, dry_run=dry_run) as equipment, Agent(equipment).running():
        watchdog = asyncio.create_task(supervisor.watch(lambda: True), name="watchdog")
        supervisor.tell("READY=1", f"STATUS=Watches {equipment.client.endpoint}.")
        await stop.wait()
        supervisor.tell("STOPPING=1")
        watchdog.cancel()
        _end_for_sure()


def _end_for_sure() -> None:
    """End the process soon, whoever does not: a name that is being looked up, say. The journal has what was begun."""
    end = threading.Timer(LONGEST_END, os._exit, args=(0,))
    end.daemon = True
    end.start()


def _listen_to_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for name in ENDING:
        if number := getattr(signal, name, None):
            loop.add_signal_handler(number, stop.set)


if __name__ == "__main__":
    main(*sys.argv[1:])
