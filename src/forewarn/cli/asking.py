"""How a command on a VM reaches the metadata endpoint, and how it ends when that does not answer as hoped."""

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from inspect import signature
from typing import Annotated, Any, Concatenate, NamedTuple, ParamSpec

import typer

from forewarn.cli.exits import Exit, Stop
from forewarn.cli.options import option, with_options
from forewarn.cli.output import Output, say
from forewarn.cli.reaching import OUTPUT
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

Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        envvar="FOREWARN_ENDPOINT",
        metavar="URL",
        help="Where the metadata endpoint is, if not at 169.254.169.254.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", envvar="FOREWARN_NAME", metavar="VM", help="This VM's resource name, if the endpoint does not say it."
    ),
]
RetryFor = Annotated[
    str,
    typer.Option(
        "--retry-for", envvar="FOREWARN_RETRY_FOR", metavar="DURATION", help="How long to try if nobody answers: 30s."
    ),
]

WHERE = (option("endpoint", Endpoint), option("name", Name), option("retry_for", RetryFor, "30s"))


class AskedFromVm(NamedTuple):
    """What a command gets for those options: the events of this VM's scope, and how to show them."""

    events: ScheduledEvents
    name: str | None
    output: Output

    def name_if_known(self) -> str | None:
        """Return what this VM is called, unless the endpoint does not say it at once: most commands can do without."""
        if self.name is not None:
            return self.name
        try:
            with ScheduledEvents(self.events.endpoint, retry_for=0.0, on_trouble=lambda *_: None) as events:
                return events.name
        except ClientError:
            return None


def asks_endpoint(command: Callable[Concatenate[AskedFromVm, P], None]) -> Callable[..., None]:
    """Give a command the options that lead to the endpoint, and in their place the endpoint."""

    @wraps(command)
    def with_endpoint(output: Output, **given: Any) -> None:
        where = {item.name: given.pop(item.name) for item in WHERE}
        try:
            with connect(**where) as events:
                command(AskedFromVm(events, where["name"], output), **given)  # type: ignore[call-arg]  # the rest is the command's own
        except ClientError as error:
            raise Stop(exit_after(error), f"{error}{_emulators(error)}") from error

    _, *own = signature(command).parameters.values()
    return with_options(with_endpoint, (*own, *WHERE, OUTPUT))


def connect(endpoint: str | None = None, name: str | None = None, retry_for: str = "30s") -> ScheduledEvents:
    """Make a client of the endpoint that the options name; it says on stderr when it has to try again."""
    return ScheduledEvents(endpoint, name=name, retry_for=_seconds(retry_for), on_trouble=_say_trouble)


def _emulators(error: ClientError) -> str:
    return (
        "; of the emulator, name a URL of `forewarn vm list` with --endpoint" if isinstance(error, Unreachable) else ""
    )


def exit_after(error: ClientError) -> Exit:
    """Tell how the program ends after an error of the client. What knows no Scheduled Events counts as not there."""
    match error:
        case NotAnEndpoint() | NotAnEvent():
            return Exit.USAGE
        case NoSuchEvent():
            return Exit.NOT_FOUND
        case Refused() if not isinstance(error, NoVersion):
            return Exit.REFUSED
        case _:
            return Exit.UNREACHABLE


def _say_trouble(error: ClientError, pause: float) -> None:
    say(f"{error.what}; trying again in {pause:.0f} s.")


def _seconds(duration: str) -> float:
    try:
        return parse_duration(duration) / timedelta(seconds=1)
    except Invalid as error:
        raise Stop(Exit.USAGE, f"--retry-for: {error}") from None
