"""Commands of hosts and their responses: they survive the way, and a host gets the error that control has raised."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from forewarn.core.errors import InvalidTransition, NoticeTooShort, ScopeEventNotFound, WrongHost
from forewarn.core.impact import Done, Failed, Retry, Unknown
from forewarn.fleet.errors import CommandRefused, HostTaken, OutcomeUnknown, SaveFailed, ScopeNotFound
from forewarn.fleet.host.commands import (
    COMMANDS,
    Approve,
    Begin,
    Claim,
    CommandResponse,
    HostCommand,
    Release,
    Renew,
    ReportPorts,
    ScopePolls,
    Seen,
    Settle,
    decode_command,
    decode_response,
    encode,
)

NOW = datetime(2030, 1, 7, 10, tzinfo=UTC)
SAMPLES: list[HostCommand] = [
    Claim(process="p", holder="process 1", ports={"web/web-0": 20_000}),
    Renew(process="p", term=1, scopes="d"),
    Release(process="p", term=1),
    Approve(process="p", term=1, scope="web", revision=7, vm="web-0", events=("E",)),
    Seen(process="p", term=1, scopes={"web": ScopePolls(seen_at=NOW, version="2020-07-01", vms={"web-0": NOW})}),
    Begin(process="p", term=1, scope="web", event="E", vm="web-0", attempt=2, again=True),
    Settle(process="p", term=1, scope="web", event="E", vm="web-0", attempt=1, retry=Retry(timedelta(seconds=3))),
    ReportPorts(process="p", term=1, address="127.0.0.1", ports={"web/web-0": 20_000}),
]


@pytest.mark.parametrize("command", SAMPLES, ids=lambda each: each.name)
def test_command_is_the_same_after_its_way(command: HostCommand) -> None:
    assert decode_command(command.name, encode(command)) == command


def test_every_command_has_a_sample() -> None:
    assert {each.name for each in SAMPLES} == set(COMMANDS)


def test_unknown_command_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no command purge"):
        decode_command("purge", b"{}")


@pytest.mark.parametrize("outcome", [Done(host="hv-1"), Failed("no"), Retry(timedelta(seconds=1)), Unknown("why")])
def test_outcome_is_the_one_that_is_given(outcome: Done | Failed | Retry | Unknown) -> None:
    given = {type(outcome).__name__.lower(): outcome}
    plain = Settle(process="p", scope="web", event="E", vm="web-0", attempt=1)
    command = msgspec.structs.replace(plain, **given)
    assert command.outcome == outcome


def test_missing_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match="missing"):
        _ = Settle(process="p", scope="web", event="E", vm="web-0", attempt=1).outcome


@pytest.mark.parametrize(
    "error",
    [
        ScopeEventNotFound("E", "web"),
        ScopeNotFound("web"),
        WrongHost("web/web-0", "hv-1", 3),
        HostTaken("hv-0", "process 7"),
        InvalidTransition("E", "Scheduled", "be worked on"),
        SaveFailed("disk full"),
        OutcomeUnknown("no answer"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_host_gets_the_error_that_control_has_raised(error: SaveFailed | ScopeNotFound) -> None:
    response = decode_response(encode(CommandResponse.from_error(error)))
    with pytest.raises(type(error)) as raised:
        response.check()
    assert str(raised.value) == str(error)


def test_other_refusals_keep_their_code_and_text() -> None:
    error = NoticeTooShort("Reboot", "15m", NOW, NOW)
    response = decode_response(encode(CommandResponse.from_error(error)))
    with pytest.raises(CommandRefused) as raised:
        response.check()
    assert (raised.value.refusal, str(raised.value)) == (error.code, str(error))
