"""A rehearsal takes from a production file what decides about events, and nothing that reaches the outside."""

from pathlib import Path

import pytest

from forewarn.core.policy import AnnouncePolicy
from forewarn.settings.errors import SettingsError
from forewarn.settings.loader import iter_values
from forewarn.settings.rehearsal import TAKEN, load_rehearsal
from forewarn.settings.schema import EMULATOR, KEYS, SIMULATED_TIME_KEYS, UNPROTECTED_KEYS
from forewarn.settings.types import PlatformName
from tests.settings.sample_values import EVERY_KEY

FLEET = {"fleet": "/export.toml"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A production file that sets every key that `serve` allows, each unlike its default."""
    path = tmp_path / "forewarn.toml"
    keys = [key for key in KEYS if key not in {*SIMULATED_TIME_KEYS, *UNPROTECTED_KEYS}]
    path.write_text("\n".join(f"{key} = {EVERY_KEY[key][0]}" for key in keys))
    return path


def test_every_key_is_either_taken_or_left_out(file: Path) -> None:
    settings, rehearsal = load_rehearsal(file, flags=FLEET)
    assert {*rehearsal.taken, *rehearsal.left_out} == set(KEYS) - {*SIMULATED_TIME_KEYS, *UNPROTECTED_KEYS}
    used, own = dict(iter_values(settings)), dict(iter_values(EMULATOR.settings))
    assert {key for key in rehearsal.left_out if used[key] != own[key]} == {"fleet", "ephemeral"}, "given by flags"
    assert {key.partition(".")[0] for key in rehearsal.taken} == set(TAKEN)
    assert (settings.platform, settings.campaigns, settings.command) == (
        PlatformName.SIMULATED,
        EMULATOR.settings.campaigns,
        EMULATOR.settings.command,
    )


def test_policy_is_that_of_production_also_where_the_file_is_silent(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.toml"
    path.write_text('platform = "command"\ncommand.program = "/bin/maintain"\npolicy.user_operations = 3\n')
    settings, rehearsal = load_rehearsal(path, flags=FLEET)
    policy = settings.policy
    assert (policy.announce, policy.enforce_notice, policy.user_operations) == (AnnouncePolicy.WHEN_ENABLED, True, 3)
    assert (rehearsal.taken, rehearsal.left_out) == (("policy.user_operations",), ("command.program", "platform"))
    assert "command.program (never run), platform (simulated)" in rehearsal.messages()[2]


def test_variables_do_not_enter_a_rehearsal(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN_PLATFORM", "command")
    monkeypatch.setenv("FOREWARN_DATA", "/var/lib/forewarn")
    settings, _ = load_rehearsal(file, flags=FLEET)
    assert (settings.platform, settings.data, settings.ephemeral) == (PlatformName.SIMULATED, None, True)


def test_flags_have_precedence_over_the_file(file: Path) -> None:
    settings, _ = load_rehearsal(file, flags={**FLEET, "network": "green", "data": "/rehearsal", "manual_time": True})
    assert (settings.network, settings.data, settings.ephemeral) == ("green", Path("/rehearsal"), False)
    assert settings.manual_time


def test_gates_are_named_and_can_be_closed(file: Path) -> None:
    _, rehearsal = load_rehearsal(file, flags=FLEET, closed_gates=["web"])
    assert (rehearsal.gates, rehearsal.closed_gates) == (("db", "web"), frozenset({"web"}))
    assert rehearsal.messages()[3] == "Gates, simulated: db (open), web (closed)."


@pytest.mark.parametrize(
    ("flags", "closed", "words"),
    [({}, [], "--fleet FILE"), (FLEET, ["wbe"], "--closed-gate wbe")],
    ids=["no fleet", "unknown gate"],
)
def test_incomplete_rehearsal_is_refused(file: Path, flags: dict[str, object], closed: list[str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_rehearsal(file, flags=flags, closed_gates=closed)
