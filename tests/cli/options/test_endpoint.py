"""Exit codes for errors of the client library."""

from collections.abc import Iterator

from forewarn.cli.options.endpoint import exit_code_for
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
