"""Options for commands that talk to a guest endpoint (--endpoint, --name, --retry-for), and the connection."""

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import Command, OptionTable, option, output_option, usage_errors, with_options
from forewarn.cli.output import Output, write_message
from forewarn.client import (
    ClientError,
    NoSuchEvent,
    NotAnEndpoint,
    NotAnEvent,
    NoVersion,
    Refused,
    ScheduledEvents,
    Unreachable,
)
from forewarn.core.duration import parse_duration
from forewarn.core.errors import Invalid

P = ParamSpec("P")

ENDPOINT_HELP = "The URL of the metadata endpoint; default: http://169.254.169.254."

ENDPOINT_OPTIONS: OptionTable = {
    "endpoint": option("--endpoint", envvar="FOREWARN_ENDPOINT", metavar="URL", help=ENDPOINT_HELP),
    "name": option(
        "--name",
        envvar="FOREWARN_NAME",
        metavar="VM",
        help="This VM's resource name, if the endpoint does not provide it.",
    ),
    "retry_for": option(
        "--retry-for",
        envvar="FOREWARN_RETRY_FOR",
        metavar="DURATION",
        default="30s",
        show_default=True,
        help="How long to retry if the endpoint does not answer.",
    ),
}


class EndpointConnection(NamedTuple):
    """The endpoint's client, the VM's name and the output format, as selected by the options."""

    events: ScheduledEvents
    name: str | None
    output: Output

    def name_if_known(self) -> str | None:
        """Return this VM's name, or None if the endpoint does not provide it at once; most commands do not need it."""
        if self.name is not None:
            return self.name
        try:
            with ScheduledEvents(self.events.endpoint, retry_for=0.0, on_trouble=lambda *_: None) as events:
                return events.name
        except ClientError:
            return None


def with_endpoint(command: Callable[Concatenate[EndpointConnection, P], None]) -> Command:
    """Add the endpoint options to a command, which receives the resulting connection."""

    @wraps(command)
    def wrapped(output: Output, **given: Any) -> None:
        endpoint_options = {name: given.pop(name) for name in ENDPOINT_OPTIONS}
        try:
            with connect(**endpoint_options) as events:
                command(EndpointConnection(events, endpoint_options["name"], output), **given)  # type: ignore[call-arg]  # the other parameters are the command's own
        except ClientError as error:
            raise CliError(exit_code_for(error), f"{error}{_emulator_hint(error)}") from error

    return with_options((*ENDPOINT_OPTIONS.values(), output_option))(wrapped)


def connect(endpoint: str | None = None, name: str | None = None, retry_for: str = "30s") -> ScheduledEvents:
    """Return a client of the endpoint that the options name; it reports retries on stderr."""
    with usage_errors("--retry-for", Invalid):
        seconds = parse_duration(retry_for) / timedelta(seconds=1)
    with usage_errors("--endpoint", NotAnEndpoint):
        return ScheduledEvents(endpoint, name=name, retry_for=seconds, on_trouble=_write_retry)


def _emulator_hint(error: ClientError) -> str:
    return (
        "; for the emulator, pass a URL from `forewarn vm list` with --endpoint"
        if isinstance(error, Unreachable)
        else ""
    )


def exit_code_for(error: ClientError) -> ExitCode:
    """Return the exit code for a client error. An endpoint without Scheduled Events counts as unreachable."""
    match error:
        case NotAnEndpoint() | NotAnEvent():
            return ExitCode.USAGE
        case NoSuchEvent():
            return ExitCode.NOT_FOUND
        case Refused() if not isinstance(error, NoVersion):
            return ExitCode.REFUSED
        case _:
            return ExitCode.UNREACHABLE


def _write_retry(error: ClientError, pause: float) -> None:
    write_message(f"{error.what}; retrying in {pause:.0f} s.")
