"""`forewarn agent …`: run the agent, check its settings and handlers, show its status."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from forewarn.agent.settings import AgentSettings, read_settings, settings_file, variable
from forewarn.cli.colours import Colour, coloured
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import FILE_PATH, CommandGroup, option, output_option
from forewarn.cli.options.endpoint import endpoint_option
from forewarn.cli.output import Output, write, write_json, write_message
from forewarn.clock import SystemClock
from forewarn.core.duration import format_duration

if TYPE_CHECKING:
    from forewarn.agent.handlers.base import Handler

app = CommandGroup()

agent_config_option = option(
    "--config",
    envvar="FOREWARN_AGENT_CONFIG",
    metavar="FILE",
    help="The settings file; else agent.toml here, else /etc/forewarn/agent.toml.",
)
state_option = option(
    "--state", envvar="FOREWARN_AGENT_STATE", metavar="DIR", help="The directory of the agent's journal."
)

AGENT = "the agent itself"


class HandlerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the self-test of a handler, or of the agent, says; no problems, if it is fine."""

    handler: str
    kind: str
    problems: list[str]


@app.command("run")
@agent_config_option
@endpoint_option
@state_option
@click.option("--dry-run", is_flag=True, help="Watch, and log what would be done. Nothing is done or approved.")
def run(config: str | None, endpoint: str | None, state: str | None, dry_run: bool) -> None:
    """Prepare for events that affect this VM, approve, recover. Until SIGTERM or Ctrl-C.

    Settings are in agent.toml; `forewarn agent check` tries them. Logs go to stderr.

    Example: forewarn agent run --config agent.toml --dry-run
    """
    from forewarn.cli.process.agent_main import exec_agent

    file, environ = _file(config), _environ(endpoint, state)
    read_settings(file, environ)
    exec_agent(file, environ, dry_run=dry_run)


@app.command("check")
@agent_config_option
@endpoint_option
@state_option
@click.option("--dry-run", is_flag=True, help="Show what would be done about events, and the time of each step.")
@click.option(
    "--event",
    type=FILE_PATH,
    metavar="FILE",
    help="With --dry-run: an event as JSON, as the endpoint shows it; - is stdin.",
)
@output_option
def check(
    config: str | None, endpoint: str | None, state: str | None, dry_run: bool, event: Path | None, output: Output
) -> None:
    """Check the settings and let every handler test itself. Nothing is changed, and nothing is sent to others.

    With --dry-run it shows what would happen: for every type of event with its usual notice, or for a given one.
    The exit code is 0 if all is well, 1 if a handler would not work, 2 if the settings are wrong.

    Example: forewarn agent check --dry-run
    """
    settings = _settings(config, endpoint, state)
    if event is not None and not dry_run:
        raise CliError(ExitCode.USAGE, "--event is for --dry-run")
    if dry_run:
        _show_plans(settings, event, output)
        return
    checks = asyncio.run(_check_handlers(settings))
    if output is Output.JSON:
        write_json(checks)
    else:
        _write_checks(checks)
    failed = [finding.handler for finding in checks if finding.problems]
    if failed:
        write_message(f"The settings are good, but this would not work: {', '.join(failed)}.")
        raise click.exceptions.Exit(ExitCode.FAILED)
    write_message("All is well.")


@app.command("status")
@agent_config_option
@state_option
@output_option
def status(config: str | None, state: str | None, output: Output) -> None:
    """Show the agent's work on events. If no agent runs, the state that the last one left.

    The exit code is 0 if an agent runs, else 1.

    Example: forewarn agent status -o json
    """
    from forewarn.agent.status import read_status
    from forewarn.cli.views.agent import status_json, write_status

    directory = _settings(config, None, state).state
    try:
        agent_status = read_status(directory)
    except PermissionError as error:
        raise CliError(ExitCode.REFUSED, f"{directory} may not be read by this user: {error.strerror}") from error
    if output is Output.JSON:
        write_json(status_json(agent_status))
    else:
        write_status(agent_status, directory)
    if not agent_status.is_running:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _settings(config: str | None, endpoint: str | None, state: str | None) -> AgentSettings:
    return read_settings(_file(config), _environ(endpoint, state))


def _file(config: str | None) -> Path | None:
    return settings_file(config, os.environ, Path.cwd())


def _environ(endpoint: str | None, state: str | None) -> dict[str, str]:
    """Return the variables; what is said on the command line stands in for its variable."""
    overrides = {variable("endpoint"): endpoint, variable("state"): state}
    return {**os.environ, **{name: value for name, value in overrides.items() if value}}


async def _check_handlers(settings: AgentSettings) -> list[HandlerCheck]:
    from forewarn.agent.compose import check_agent
    from forewarn.agent.handlers.registry import create_handlers

    handlers = create_handlers(settings)
    kinds = {each.name: each.kind for each in settings.handlers}
    return [
        HandlerCheck(handler=AGENT, kind="state and peers", problems=check_agent(settings)),
        *[
            HandlerCheck(handler=name, kind=kinds[name], problems=await _problems_of(handler))
            for name, handler in handlers.items()
        ],
    ]


async def _problems_of(handler: "Handler") -> list[str]:
    """Return what a self-test says; one that hangs says enough."""
    try:
        async with asyncio.timeout(handler.time_limit.total_seconds()):
            return await handler.check()
    except TimeoutError:
        return [f"its self-test came to no end within {format_duration(handler.time_limit)}"]


def _write_checks(checks: Sequence[HandlerCheck]) -> None:
    for finding in checks:
        mark = coloured("✗", Colour.BAD) if finding.problems else coloured("✓", Colour.GOOD)
        write(f"{mark} {finding.handler} ({finding.kind})")
        for problem in finding.problems:
            write(f"    {problem}")


def _show_plans(settings: AgentSettings, event: Path | None, output: Output) -> None:
    from forewarn.cli.views.agent import plan_event, read_event, sample_events, write_plans

    events = sample_events(settings) if event is None else [read_event(event)]
    plans = [plan_event(settings, each, SystemClock().now()) for each in events]
    if output is Output.JSON:
        write_json(plans)
    else:
        write_plans(plans)
