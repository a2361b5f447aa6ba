"""Settings: which value holds, where it came from, and what is said of a wrong one."""

import json
import re
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.policy import AnnouncePolicy
from forewarn.settings import (
    DEMONSTRATION,
    EMULATOR,
    KEYS,
    PRODUCTION,
    GuestSettings,
    InvalidSetting,
    InvalidSettingsFile,
    ListenAddress,
    LogFormat,
    LogLevel,
    LogSettings,
    MissingSetting,
    PlatformName,
    PolicySettings,
    Precedence,
    Preset,
    Settings,
    SettingsConflict,
    SettingsError,
    SettingSource,
    format_value,
    iter_values,
    load_settings,
    variable_name,
)
from forewarn.settings.schema import SimulatedSettings
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
def test_the_value_closest_to_the_user_holds(case: str, tmp_path: Path) -> None:
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
    assert same == {"ephemeral"}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """`forewarn config` shows values as a file takes them."""
    said = load_settings(EMULATOR, flags={key: text for key, (_, text) in EVERY_KEY.items()}, environ={}).settings
    text = as_file({key: json.dumps(format_value(value)) for key, value in iter_values(said)})
    assert (
        load_settings(EMULATOR, flags={}, environ={}, file=written_to(tmp_path / "forewarn.toml", text)).settings
        == said
    )


def test_paths_in_a_file_are_beside_it(tmp_path: Path) -> None:
    file = written_to(tmp_path / "forewarn.toml", 'data = "data"\nfleet = "/etc/fleet.toml"')
    settings = load_settings(EMULATOR, flags={}, environ={}, file=file).settings
    assert (settings.data, settings.fleet) == (tmp_path / "data", Path("/etc/fleet.toml"))


def test_emulator_announces_always_limits_nothing_and_takes_any_notice() -> None:
    assert EMULATOR.settings == Settings(
        fleet=DEMONSTRATION,
        listen=ListenAddress("127.0.0.1", 8180),
        operator=ListenAddress("127.0.0.1", 8170),
        guest=GuestSettings(requests_per_second=None),
        policy=PolicySettings(announce=AnnouncePolicy.ALWAYS, enforce_notice=False, idle_after=None),
        log=LogSettings(format=LogFormat.TEXT, level=LogLevel.WARNING),
    )


def test_production_keeps_the_limits_of_the_protocol() -> None:
    assert PRODUCTION.settings == Settings(
        fleet=None,
        listen=None,
        guest=GuestSettings(requests_per_second=5, unsupported_version_status=404, enable_delay=timedelta(0)),
        policy=PolicySettings(
            announce=AnnouncePolicy.WHEN_ENABLED,
            enforce_notice=True,
            idle_after=timedelta(hours=24),
            user_operations=10,
        ),
        log=LogSettings(format=LogFormat.JSON, level=LogLevel.INFO),
    )


BAD_VALUES = {
    "data": "~no-such-user/data",
    "fleet": "~no-such-user/fleet.toml",
    "tls.certificate": "~no-such-user/certificate.pem",
    "tls.key": "~no-such-user/key.pem",
    "ephemeral": "perhaps",
    "listen": "127.0.0.1",
    "listen_link_local": "no/such",
    "network": "",
    "operator": "example.org:80",
    "operator_without_tls": "perhaps",
    "manual_time": "2",
    "speed": "0",
    "platform": "libvirt",
    "gates": "web",
    "guest.requests_per_second": "0",
    "guest.unsupported_version_status": "200",
    "guest.enable_delay": "2 minutes",
    "policy.announce": "never",
    "policy.enforce_notice": "maybe",
    "policy.idle_after": "-1h",
    "policy.user_operations": "0",
    "simulated.freeze": "9",
    "simulated.reboot": "soon",
    "simulated.redeploy": "1.5h",
    "simulated.preempt": "",
    "simulated.terminate": "1y",
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
    "journal.rows": "0",
    "log.format": "xml",
    "log.level": "loud",
}


def test_bad_values_are_known_for_every_key() -> None:
    assert set(BAD_VALUES) == set(KEYS)


@pytest.mark.parametrize("key", BAD_VALUES)
def test_bad_value_is_refused_with_its_place_and_what_is_allowed(key: str, tmp_path: Path) -> None:
    section, _, name = key.rpartition(".")
    file = written_to(tmp_path / "forewarn.toml", f'{f"[{section}]" if section else ""}\n{name} = "{BAD_VALUES[key]}"')
    with pytest.raises(SettingsError) as in_file:
        load_settings(EMULATOR, flags={}, environ={}, file=file)
    with pytest.raises(SettingsError) as as_flag:
        load_settings(EMULATOR, flags={key: BAD_VALUES[key]}, environ={})
    complaint = f"{key} takes {KEYS[key].allowed}, not {BAD_VALUES[key]!r}"
    assert str(in_file.value) == f"{file}:2: {complaint}"
    assert str(as_flag.value) == f"--{key.replace('.', '-').replace('_', '-')}: {complaint}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sped = 2", "1: there is no setting sped; known here: data, ephemeral, fleet, listen"),
        (
            "[guest]\nrate = 5",
            "2: there is no setting guest.rate; known here: requests_per_second, unsupported_version",
        ),
        ("[guests]\nrate = 5", "1: there is no setting guests; known here: data"),
        ("speed = ", " this is not TOML: "),
        ("speed = true", "1: speed takes a number above 0, at most 1000000, not True"),
        ("\nguest = 5", "2: guest takes a table, not 5"),
        (
            "[gates.web]\nuri = 'http://h'",
            "2: gates.web.uri takes nothing: there is no such key, only command, url",
        ),
        ("[gates.web]\nurl = 'h:80'", "2: gates.web.url takes a URL such as"),
        ("[gates.web]\nretries = 1", "1: gates.web takes either command or url, not {'retries': 1}"),
        ("[gates.web]\nurl = 'http://h'\ncommand = ['/bin/a']", "1: gates.web takes either command or url, not"),
        (
            "[gates]\nweb = 5",
            "2: gates.web takes a table with command, url, expect_status, timeout, re",
        ),
        ("[gates.'a b']\nurl = 'http://h'", "1: gates takes tables by name, each with command or url"),
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
def test_wrong_file_is_refused_by_name(text: str, complaint: str, tmp_path: Path) -> None:
    file = written_to(tmp_path / "forewarn.toml", text)
    with pytest.raises(SettingsError) as refused:
        load_settings(EMULATOR, flags={}, environ={}, file=file)
    assert str(refused.value).startswith(f"{file}:{complaint}")


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingsFile) as refused:
        load_settings(EMULATOR, flags={}, environ={}, file=tmp_path / "gone.toml")
    assert str(refused.value) == f"{tmp_path / 'gone.toml'}: cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("preset", "flags", "complaint"),
    [
        (EMULATOR, {"operator": "0.0.0.0:8170"}, "--operator: operator takes a loopback address"),
        (EMULATOR, {"listen": "[2001:db8::1]:80"}, "--listen: listen takes a loopback address"),
        (PRODUCTION, {"speed": "2"}, "--speed: speed is for the emulator"),
        (PRODUCTION, {"manual_time": True}, "--manual-time: manual_time is for the emulator"),
        (EMULATOR, {"data": "/x", "ephemeral": True}, "--data and --ephemeral: a data directory, or none"),
        (PRODUCTION, {"operator": "0.0.0.0:1"}, "--operator: operator 0.0.0.0:1 can be reached from other machines"),
        (PRODUCTION, {"tls.key": "/k"}, "--tls-key: tls.key is set and tls.certificate is not"),
        (PRODUCTION, {"tls.certificate": "/c"}, "--tls-certificate: tls.certificate is set and tls.key is not"),
        (PRODUCTION, {"platform": "command"}, "--platform: platform command needs command.program"),
        (PRODUCTION, {"command.first_pause": "1h"}, "--command-first-pause: command.first_pause is longer than"),
    ],
    ids=[
        "operator beyond loopback",
        "guests beyond loopback",
        "speed",
        "manual time",
        "data and ephemeral",
        "operator without TLS",
        "key alone",
        "certificate alone",
        "command without program",
        "pauses",
    ],
)
def test_what_a_preset_does_not_allow_is_refused(preset: Preset, flags: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(preset, flags={"platform": "simulated"} | flags, environ={})
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize(
    "flags",
    [{"operator_without_tls": True}, {"tls.certificate": "/c", "tls.key": "/k"}],
    ids=["told so", "with TLS"],
)
def test_operators_are_served_beyond_loopback_with_tls_or_when_told_so(flags: dict[str, object]) -> None:
    said = {"platform": "simulated", "operator": "192.0.2.1:8170"}
    assert load_settings(PRODUCTION, flags=said | flags, environ={}).settings.operator == ListenAddress(
        "192.0.2.1", 8170
    )


def test_production_wants_to_be_told_who_carries_maintenance_out() -> None:
    with pytest.raises(MissingSetting) as refused:
        load_settings(PRODUCTION, flags={}, environ={})
    assert str(refused.value).startswith("platform is not set, and a service that announces what nobody carries out")
    said = load_settings(PRODUCTION, flags={}, environ={"FOREWARN_PLATFORM": "simulated"})
    assert said.settings.platform is PlatformName.SIMULATED


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"])
def test_emulator_listens_on_any_loopback_address(host: str) -> None:
    operator = load_settings(EMULATOR, flags={"operator": f"{host}:1"}, environ={}).settings.operator
    assert operator.is_loopback


@pytest.mark.parametrize(
    ("flags", "environ", "expected"),
    [
        ({"ephemeral": True}, {"FOREWARN_DATA": "/d"}, (None, True)),
        ({"data": "/d"}, {"FOREWARN_EPHEMERAL": "1"}, (Path("/d"), False)),
        ({"ephemeral": False, "data": "/d"}, {}, (Path("/d"), False)),
    ],
    ids=["ephemeral is closer", "data are closer", "not ephemeral"],
)
def test_of_data_and_ephemeral_the_one_closer_to_the_user_holds(
    flags: dict[str, object], environ: dict[str, str], expected: tuple[Path | None, bool]
) -> None:
    settings = load_settings(EMULATOR, flags=flags, environ=environ).settings
    assert (settings.data, settings.ephemeral) == expected


def test_both_in_the_environment_are_a_contradiction() -> None:
    with pytest.raises(SettingsConflict, match="FOREWARN_DATA and FOREWARN_EPHEMERAL"):
        load_settings(EMULATOR, flags={}, environ={"FOREWARN_DATA": "/d", "FOREWARN_EPHEMERAL": "1"})


def test_none_switches_off_what_a_preset_switches_on() -> None:
    flags = {"listen": "none"}
    settings = load_settings(EMULATOR, flags=flags, environ={"FOREWARN_POLICY_IDLE_AFTER": "none"}).settings
    assert (settings.listen, settings.policy.idle_after) == (None, None)


def test_none_means_no_fleet_and_no_interface() -> None:
    flags = {"fleet": "none", "listen_link_local": "none", "command.program": "none"}
    settings = load_settings(EMULATOR, flags=flags, environ={}).settings
    assert (settings.fleet, settings.listen_link_local, settings.command.program) == (None, (), ())


@pytest.mark.parametrize("said", ["br0,br0", "br0=", "=blue", "br0=blue=green", ","])
def test_interfaces_have_names_and_are_named_once(said: str) -> None:
    with pytest.raises(InvalidSetting):
        load_settings(EMULATOR, flags={"listen_link_local": said}, environ={})


ROW = re.compile(r"^\| `([a-z_.]+)` \| `(FOREWARN_[A-Z_]+)` \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
# What the page says in words, because it is another value on each machine, or cannot be set.
SAID_IN_WORDS = {"data", "manual_time", "speed", "platform"}


def test_reference_names_every_key_with_its_variable_and_defaults() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text()
    rows = {key: (variable_, emulator, production) for key, variable_, emulator, production in ROW.findall(page)}
    assert list(rows) == list(KEYS)
    for key, (named, *defaults) in rows.items():
        assert named == variable_name(key)
        presets = [shown(dict(iter_values(preset.settings))[key]) for preset in (EMULATOR, PRODUCTION)]
        assert defaults == presets or key in SAID_IN_WORDS, key


def shown(value: object) -> str:
    """Write a value as the page does."""
    text = format_value(value)
    return str(text).lower() if isinstance(text, bool) else str(text)


def test_simulated_platform_has_one_setting_per_event_type() -> None:
    assert msgspec.structs.asdict(SimulatedSettings()) == {
        type_.name.lower(): spec.default_duration for type_, spec in EVENT_TYPES.items()
    }
