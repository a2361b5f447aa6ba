"""`forewarn agent …`: run the agent, check its settings and handlers, show its status."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from forewarn.agent.settings import AgentSettings, read_settings, searched_files, settings_file, variable
from forewarn.cli.colours import Colour, coloured
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import FILE_PATH, CommandGroup, declare_config_option, output_option, setting_option
from forewarn.cli.options.endpoint import ENDPOINT_HELP
from forewarn.cli.output import Output, write, write_json, write_message
from forewarn.clock import SystemClock
from forewarn.core.duration import format_duration

if TYPE_CHECKING:
    from forewarn.agent.handlers.base import Handler

app = CommandGroup()

agent_config_option = declare_config_option(
    "FOREWARN_AGENT_CONFIG", "The settings file; default: ./agent.toml, else /etc/forewarn/agent.toml."
)
endpoint_option = setting_option("endpoint", ENDPOINT_HELP, "URL", variable=variable)
state_option = setting_option("state", "The directory of the agent's journal.", "DIR", variable=variable)

AGENT = "the agent itself"


class HandlerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a self-test of one handler or of the agent; `problems` is empty if it passed."""

    handler: str
    kind: str
    problems: list[str]


@app.command("run")
@agent_config_option
@endpoint_option
@state_option
@click.option("--dry-run", is_flag=True, help="Log what the agent would do; run and approve nothing.")
def run(config: str | None, endpoint: str | None, state: str | None, dry_run: bool) -> None:
    """Prepare for events that affect this VM, approve, recover. Runs until SIGTERM or Ctrl-C.

    The settings are in agent.toml; `forewarn agent check` checks them. Logs go to stderr.

    Example: forewarn agent run --config agent.toml --dry-run
    """
    from forewarn.cli.process.agent_main import exec_agent

    file, flags = _file(config), _flags(endpoint, state)
    read_settings(file, os.environ, flags=flags)
    exec_agent(file, os.environ | {variable(key): value for key, value in flags.items()}, dry_run=dry_run)


@app.command("check")
@agent_config_option
@endpoint_option
@state_option
@click.option("--dry-run", is_flag=True, help="Show the planned steps for events and the time of each.")
@click.option(
    "--event",
    type=FILE_PATH,
    metavar="FILE",
    help="With --dry-run: a file with one event as JSON, as the endpoint returns it; - is stdin.",
)
@output_option
def check(
    config: str | None, endpoint: str | None, state: str | None, dry_run: bool, event: Path | None, output: Output
) -> None:
    """Check the settings and run each handler's self-test. Changes nothing and sends nothing to others.

    With --dry-run, show the planned steps for each event type with its usual notice, or for the given event.
    The exit code is 0 if all checks passed, 1 if a check failed, 2 if the settings are invalid.

    Example: forewarn agent check --dry-run
    """
    if event is not None and not dry_run:
        raise CliError(ExitCode.USAGE, "--event requires --dry-run")
    file = _file(config)
    settings = read_settings(file, os.environ, flags=_flags(endpoint, state))
    if file is None:
        looked = " nor ".join(map(str, searched_files(Path.cwd())))
        write_message(
            f"No settings file was found: there is neither {looked}. "
            "This checks the defaults, with which the agent logs events and approves nothing; use --config FILE."
        )
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
        write_message(f"The settings are valid, but these self-tests failed: {', '.join(failed)}.")
        raise click.exceptions.Exit(ExitCode.FAILED)
    write_message("All checks passed." if file is not None else "The defaults passed all checks.")


@app.command("status")
@agent_config_option
@state_option
@output_option
def status(config: str | None, state: str | None, output: Output) -> None:
    """Show the agent's work on events. If no agent runs, show the state that the last one saved.

    The exit code is 0 if an agent runs, else 1.

    Example: forewarn agent status -o json
    """
    from forewarn.agent.status import read_status
    from forewarn.cli.views.agent import status_json, write_status

    directory = read_settings(_file(config), os.environ, flags=_flags(None, state)).state
    try:
        agent_status = read_status(directory)
    except PermissionError as error:
        raise CliError(ExitCode.REFUSED, f"cannot read {directory} as this user: {error.strerror}") from error
    if output is Output.JSON:
        write_json(status_json(agent_status))
    else:
        write_status(agent_status, directory)
    if not agent_status.is_running:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _file(config: str | None) -> Path | None:
    return settings_file(config, os.environ, Path.cwd())


def _flags(endpoint: str | None, state: str | None) -> dict[str, str]:
    """Return the settings that were given as options; an empty text counts as not given."""
    return {key: value for key, value in (("endpoint", endpoint), ("state", state)) if value}


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
    """Return the problems that a self-test finds; a self-test that hangs is a problem itself."""
    try:
        async with asyncio.timeout(handler.time_limit.total_seconds()):
            return await handler.check()
    except TimeoutError:
        return [f"self-test did not finish within {format_duration(handler.time_limit)}"]


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
