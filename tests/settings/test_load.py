"""Settings: which value holds, where it came from, and what is said of a wrong one."""

import json
from pathlib import Path

import pytest

from forewarn.settings.errors import (
    InvalidSettingsFile,
    SettingsConflict,
    SettingsError,
)
from forewarn.settings.load import load_settings
from forewarn.settings.loader import Precedence, SettingSource, iter_values
from forewarn.settings.schema import (
    EMULATOR,
    KEYS,
)
from forewarn.settings.types import (
    format_value,
    variable_name,
)
from tests.settings.sample_values import EVERY_KEY

PRECEDENCE = {
    "preset alone": (None, None, None, 1.0, SettingSource(Precedence.PRESET, "emulator")),
    "file over preset": ("2", None, None, 2.0, SettingSource(Precedence.FILE, "{file}", 1)),
    "variable over file": ("2", "3", None, 3.0, SettingSource(Precedence.ENVIRONMENT, "FOREWARN_SPEED")),
    "flag over variable": ("2", "3", "4", 4.0, SettingSource(Precedence.FLAG, "--speed")),
    "flag over file": ("2", None, "4", 4.0, SettingSource(Precedence.FLAG, "--speed")),
    "empty variable says nothing": ("2", "", None, 2.0, SettingSource(Precedence.FILE, "{file}", 1)),
}


def written_to(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("case", PRECEDENCE)
def test_source_with_the_highest_precedence_wins(case: str, tmp_path: Path) -> None:
    in_file, in_environment, as_flag, value, origin = PRECEDENCE[case]
    file = written_to(tmp_path / "forewarn.toml", f"speed = {in_file}") if in_file else None
    resolved = load_settings(
        EMULATOR,
        flags={} if as_flag is None else {"speed": as_flag},
        environ={} if in_environment is None else {"FOREWARN_SPEED": in_environment},
        file=file,
    )
    assert resolved.settings.speed == value
    assert resolved.sources["speed"] == origin._replace(name=origin.name.format(file=file))


def as_file(said: dict[str, str]) -> str:
    """Write a settings file; keys of sections come last, as TOML wants it."""
    lines = [f"{key} = {value}" for key, value in said.items() if "." not in key]
    for section in dict.fromkeys(key.partition(".")[0] for key in said if "." in key):
        lines.append(f"[{section}]")
        lines += [f"{key.partition('.')[2]} = {said[key]}" for key in said if key.startswith(f"{section}.")]
    return "\n".join(lines)


def test_every_key_can_be_set_in_a_file_and_in_the_environment(tmp_path: Path) -> None:
    assert set(EVERY_KEY) == set(KEYS)
    text = as_file({key: in_file for key, (in_file, _) in EVERY_KEY.items()})
    from_file = load_settings(EMULATOR, flags={}, environ={}, file=written_to(tmp_path / "forewarn.toml", text))
    environ = {variable_name(key): said for key, (_, said) in EVERY_KEY.items()}
    from_environment = load_settings(EMULATOR, flags={}, environ=environ)
    assert {origin.precedence for origin in from_file.sources.values()} == {Precedence.FILE}
    assert {origin.precedence for origin in from_environment.sources.values()} == {Precedence.ENVIRONMENT}
    assert from_file.settings == from_environment.settings
    unchanged = dict(iter_values(EMULATOR.settings))
    same = {key for key, value in iter_values(from_file.settings) if value == unchanged[key]}
    assert same == {"ephemeral", "host", "role", "store"}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """`forewarn config` shows values as a file takes them."""
    said = load_settings(EMULATOR, flags={key: text for key, (_, text) in EVERY_KEY.items()}, environ={}).settings
    text = as_file({key: json.dumps(format_value(value)) for key, value in iter_values(said)})
    assert (
        load_settings(EMULATOR, flags={}, environ={}, file=written_to(tmp_path / "forewarn.toml", text)).settings
        == said
    )


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    file = written_to(tmp_path / "forewarn.toml", 'data = "data"\nfleet = "/etc/fleet.toml"')
    settings = load_settings(EMULATOR, flags={}, environ={}, file=file).settings
    assert (settings.data, settings.fleet) == (tmp_path / "data", Path("/etc/fleet.toml"))


BAD_VALUES = {
    "store": "postgres",
    "role": "leader",
    "host": "a/b",
    "nats.servers": "nats://ada:secret@h1:4222",
    "nats.cell": "a.b",
    "nats.replicas": "2",
    "nats.api_prefix": "$JS..API",
    "nats.user": "",
    "nats.password_file": "",
    "nats.token_file": "",
    "nats.nkey_file": "",
    "nats.credentials_file": "",
    "nats.ca_file": "",
    "nats.certificate": "",
    "nats.key": "",
    "data": "~no-such-user/data",
    "fleet": "~no-such-user/fleet.toml",
    "tls.certificate": "~no-such-user/certificate.pem",
    "tls.key": "~no-such-user/key.pem",
    "ephemeral": "perhaps",
    "listen": "8180",
    "listen_shared": "nowhere",
    "allow_remote": "2",
    "listen_link_local": "no/such",
    "network": "",
    "operator": "example.org:80",
    "operator_without_tls": "perhaps",
    "operator_hosts": "https://forewarn.example",
    "operator_connections": "0",
    "operator_connections_per_address": "many",
    "manual_time": "2",
    "speed": "0",
    "platform": "libvirt",
    "gates": "web",
    "guest.requests_per_second": "0",
    "guest.unsupported_version_status": "200",
    "guest.enable_delay": "2 minutes",
    "guest.unreleased_version": "perhaps",
    "policy.announce": "never",
    "policy.enforce_notice": "maybe",
    "policy.idle_after": "-1h",
    "policy.user_operations": "0",
    "policy.shortest_notice": "-1s",
    "simulated.freeze": "9",
    "simulated.reboot": "soon",
    "simulated.redeploy": "1.5h",
    "simulated.preempt": "",
    "simulated.terminate": "1y",
    "simulated.spot_rebalance_recommendation": "-1s",
    "command.program": "maintain",
    "command.time_limit": "25h",
    "command.probe_limit": "0s",
    "command.at_once": "0",
    "command.attempts": "0",
    "command.first_pause": "0s",
    "command.longest_pause": "2d",
    "command.repeatable": "perhaps",
    "campaigns.webhooks": "ftp://h/x",
    "campaigns.webhook_secret_file": "~no-such-user/secret",
    "campaigns.webhook_timeout": "0s",
    "journal.age": "for ever",
    "imports.vms": "0",
    "imports.time_limit": "2d",
    "journal.rows": "0",
    "log.format": "xml",
    "log.level": "loud",
}


def test_every_key_has_a_sample_of_a_bad_value() -> None:
    assert set(BAD_VALUES) == set(KEYS)


@pytest.mark.parametrize("key", BAD_VALUES)
def test_bad_value_is_refused_with_its_place_and_what_is_allowed(key: str, tmp_path: Path) -> None:
    section, _, name = key.rpartition(".")
    file = written_to(tmp_path / "forewarn.toml", f'{f"[{section}]" if section else ""}\n{name} = "{BAD_VALUES[key]}"')
    with pytest.raises(SettingsError) as in_file:
        load_settings(EMULATOR, flags={}, environ={}, file=file)
    with pytest.raises(SettingsError) as as_flag:
        load_settings(EMULATOR, flags={key: BAD_VALUES[key]}, environ={})
    flag = f"--{key.replace('.', '-').replace('_', '-')}"
    for error, place, shown in ((in_file, f"{file}:2", f'"{BAD_VALUES[key]}"'), (as_flag, flag, repr(BAD_VALUES[key]))):
        complaint = f"{place}: {key} takes {KEYS[key].allowed}"
        # The reason of a rule replaces the value.
        assert str(error.value) == f"{complaint}, not {shown}" or str(error.value).startswith(f"{complaint}; ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sped = 2", "1: sped: unknown key; did you mean speed? Valid keys: allow_remote, campaigns, "),
        (
            "[guest]\nrate = 5",
            "2: guest.rate: unknown key; valid keys: enable_delay, requests_per_second, unreleased_version, ",
        ),
        ("[guests]\nrate = 5", "1: guests: unknown key; did you mean guest? Valid keys: allow_remote"),
        ("speed = ", " invalid TOML: "),
        ("speed = true", "1: speed takes a number above 0, at most 1000000, not true"),
        ("\nguest = 5", "2: guest takes a table, not 5"),
        (
            "[gates.web]\nuri = 'http://h'",
            "2: gates.web.uri: unknown key; valid keys: command, expect_status, pause, retries, timeout, url",
        ),
        ("[gates.web]\nurl = 'h:80'", "2: gates.web.url takes a URL such as"),
        ("[gates.web]\nretries = 1", "1: gates.web takes either command or url; it has neither"),
        (
            "[gates.web]\nurl = 'http://h'\ncommand = ['/bin/a']",
            "1: gates.web takes either command or url; it has both",
        ),
        (
            "[gates]\nweb = 5",
            "2: gates.web takes a table, not 5",
        ),
        ("[gates.'a b']\nurl = 'http://h'", "1: gates takes tables by name, each with command or url, such as "),
    ],
    ids=[
        "key",
        "key in section",
        "section",
        "toml",
        "type",
        "section as value",
        "key of a gate",
        "value of a gate",
        "gate without a way",
        "gate with two ways",
        "gate that is no table",
        "name of a gate",
    ],
)
def test_invalid_file_is_refused_by_name(text: str, complaint: str, tmp_path: Path) -> None:
    file = written_to(tmp_path / "forewarn.toml", text)
    with pytest.raises(SettingsError) as refused:
        load_settings(EMULATOR, flags={}, environ={}, file=file)
    assert str(refused.value).startswith(f"{file}:{complaint}")


@pytest.mark.parametrize(
    ("gate", "complaint"),
    [
        ('{"urll": "http://h"}', "gates.web.urll: unknown key; did you mean url? Valid keys: command, "),
        ('{"url": "http://h", "retries": true}', "gates.web.retries takes an integer from 0 to 100, not true"),
        ('{"command": "/bin/a", "timeout": "40000d"}', 'gates.web.timeout takes a duration above 0s, at most "1d"; '),
    ],
    ids=["key", "value", "reason"],
)
def test_wrong_gate_in_a_variable_is_refused_like_one_in_a_file(gate: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(EMULATOR, flags={}, environ={"FOREWARN_GATES": f'{{"web": {gate}}}'})
    assert str(refused.value).startswith(f"FOREWARN_GATES: {complaint}")


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsFile) as refused:
        load_settings(EMULATOR, flags={}, environ={}, file=tmp_path / "gone.toml")
    assert str(refused.value) == f"{tmp_path / 'gone.toml'}: cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("flags", "environ", "expected"),
    [
        ({"ephemeral": True}, {"FOREWARN_DATA": "/d"}, (None, True)),
        ({"data": "/d"}, {"FOREWARN_EPHEMERAL": "1"}, (Path("/d"), False)),
        ({"ephemeral": False, "data": "/d"}, {}, (Path("/d"), False)),
    ],
    ids=["ephemeral is closer", "data are closer", "not ephemeral"],
)
def test_data_or_ephemeral_with_the_higher_precedence_wins(
    flags: dict[str, object], environ: dict[str, str], expected: tuple[Path | None, bool]
) -> None:
    settings = load_settings(EMULATOR, flags=flags, environ=environ).settings
    assert (settings.data, settings.ephemeral) == expected


def test_data_and_ephemeral_in_the_environment_conflict() -> None:
    with pytest.raises(SettingsConflict, match="FOREWARN_DATA and FOREWARN_EPHEMERAL"):
        load_settings(EMULATOR, flags={}, environ={"FOREWARN_DATA": "/d", "FOREWARN_EPHEMERAL": "1"})


def test_none_switches_a_preset_value_off() -> None:
    flags = {"listen": "none"}
    settings = load_settings(EMULATOR, flags=flags, environ={"FOREWARN_POLICY_IDLE_AFTER": "none"}).settings
    assert (settings.listen, settings.policy.idle_after) == (None, None)


def test_none_means_no_fleet_and_no_interface() -> None:
    flags = {"fleet": "none", "listen_link_local": "none", "command.program": "none"}
    settings = load_settings(EMULATOR, flags=flags, environ={}).settings
    assert (settings.fleet, settings.listen_link_local, settings.command.program) == (None, (), ())
