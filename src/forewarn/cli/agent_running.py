"""Running the agent: its log, signals, and whoever supervises it."""

import asyncio
import logging
import os
import signal
import sys

import typer

from forewarn.agent.daemon import run_agent
from forewarn.agent.equipping import CannotRun, equipped, usable_state
from forewarn.agent.lines import HIDDEN, JsonLines
from forewarn.agent.settings import AgentSettings
from forewarn.cli.exits import Exit
from forewarn.cli.logs import TEXT
from forewarn.cli.supervisor import Supervisor
from forewarn.client.errors import ClientError
from forewarn.settings import LogFormat, LogSettings

log = logging.getLogger("forewarn.agent")

ENDING = ("SIGTERM", "SIGINT", "SIGHUP")


class TextLines(JsonLines):
    """A record as people read it, without secrets all the same."""

    def __init__(self) -> None:
        super().__init__()
        self._text = logging.Formatter(TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        text = self._text.format(record)
        for secret in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text


def run_until_told(settings: AgentSettings, *, dry_run: bool) -> None:
    """Run the agent until it is told to end."""
    lines = _set_up_log(settings.log)
    try:
        if not dry_run:
            usable_state(settings.state)
        asyncio.run(_run(settings, lines, dry_run=dry_run))
    except (CannotRun, ClientError) as error:
        log.critical("cannot start: %s", error)
        raise typer.Exit(Exit.USAGE) from error


async def _run(settings: AgentSettings, lines: JsonLines, *, dry_run: bool) -> None:
    stop = asyncio.Event()
    _listen_to_signals(stop)
    supervisor = Supervisor(os.environ)
    async with equipped(settings, hide=lines.hide, dry_run=dry_run) as equipment:
        watchdog = asyncio.create_task(supervisor.watch(lambda: True), name="watchdog")
        supervisor.tell("READY=1", f"STATUS=Watches {equipment.client.endpoint}.")
        try:
            await run_agent(equipment, stop=stop)
        finally:
            supervisor.tell("STOPPING=1")
            watchdog.cancel()


def _listen_to_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for name in ENDING:
        if number := getattr(signal, name, None):
            loop.add_signal_handler(number, stop.set)


def _set_up_log(settings: LogSettings) -> JsonLines:
    lines = JsonLines() if settings.format is LogFormat.JSON else TextLines()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines)
    logging.basicConfig(handlers=[handler], level=settings.level.number, force=True)
    logging.captureWarnings(capture=True)
    return lines
