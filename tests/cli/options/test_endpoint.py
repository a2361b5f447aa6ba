"""Options of a guest endpoint: the origin of a wrong value, and exit codes for errors of the client library."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from forewarn.cli.errors import CliError
from forewarn.cli.options.endpoint import EndpointConnection, exit_code_for, with_endpoint
from forewarn.client import ClientError
from forewarn.client.discovery import NotDiscovered


def all_errors(root: type[ClientError]) -> Iterator[type[ClientError]]:
    for error in root.__subclasses__():
        yield error
        yield from all_errors(error)


def test_every_error_of_the_client_has_its_exit_code() -> None:
    codes = {error.__name__: exit_code_for(error.__new__(error)).value for error in all_errors(ClientError)}
    undiscovered: list[type[ClientError]] = [NotDiscovered, *all_errors(NotDiscovered)]
    assert {codes.pop(error.__name__) for error in undiscovered} == {5}
    assert codes == {
        "NotAnEndpoint": 2,
        "NotAnEvent": 2,
        "Refused": 3,
        "NotAllowed": 3,
        "NoSuchEvent": 4,
        "NoVersion": 5,
        "Closed": 5,
        "Unreachable": 5,
        "TooSlow": 5,
        "Unavailable": 5,
        "NotUnderstood": 5,
        "NoName": 5,
    }


@pytest.mark.parametrize(
    ("arguments", "variable", "origin"),
    [(["--endpoint", "ftp://x"], "", "--endpoint"), ([], "ftp://x", "FOREWARN_ENDPOINT")],
    ids=["option", "variable"],
)
def test_wrong_endpoint_is_refused_by_its_origin(arguments: list[str], variable: str, origin: str) -> None:
    @click.command()
    @with_endpoint
    def command(connection: EndpointConnection) -> None:
        del connection

    refused = CliRunner().invoke(command, arguments, env={"FOREWARN_ENDPOINT": variable}).exception
    assert isinstance(refused, CliError)
    assert str(refused).startswith(f"{origin}: 'ftp://x' is not a metadata endpoint; write it like ")
