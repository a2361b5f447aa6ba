"""Settings: which value holds, where it came from, and what is said of a wrong one."""

import re
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.core.conditions import Announce
from forewarn.settings import (
    EMULATOR,
    KEYS,
    PRODUCTION,
    Contradiction,
    Endpoint,
    GuestSettings,
    Origin,
    PolicySettings,
    Preset,
    Rank,
    Settings,
    SettingsError,
    UnreadableFile,
    data_directory,
    resolve,
    settings_file,
    user_data_directory,
    variable,
)

PRECEDENCE = {
    "preset alone": (None, None, None, 1.0, Origin(Rank.PRESET, "emulator")),
    "file over preset": ("2", None, None, 2.0, Origin(Rank.FILE, "{file}")),
    "variable over file": ("2", "3", None, 3.0, Origin(Rank.ENVIRONMENT, "FOREWARN_SPEED")),
    "flag over variable": ("2", "3", "4", 4.0, Origin(Rank.FLAG, "--speed")),
    "flag over file": ("2", None, "4", 4.0, Origin(Rank.FLAG, "--speed")),
    "empty variable says nothing": ("2", "", None, 2.0, Origin(Rank.FILE, "{file}")),
}


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("case", PRECEDENCE)
def test_the_value_closest_to_the_user_holds(case: str, tmp_path: Path) -> None:
    in_file, in_environment, as_flag, value, origin = PRECEDENCE[case]
    file = written(tmp_path / "forewarn.toml", f"speed = {in_file}") if in_file else None
    resolved = resolve(
        EMULATOR,
        flags={} if as_flag is None else {"speed": as_flag},
        environ={} if in_environment is None else {"FOREWARN_SPEED": in_environment},
        file=file,
    )
    assert resolved.settings.speed == value
    assert resolved.origins["speed"] == origin._replace(name=origin.name.format(file=file))


def test_every_key_can_be_set_in_a_file_and_in_the_environment(tmp_path: Path) -> None:
    text = """
        data = "here"
        ephemeral = false
        fleet = "fleet.toml"
        listen = "127.0.0.1:9000"
        listen_link_local = "br0"
        network = "blue"
        operator = "[::1]:9001"
        manual_time = true
        speed = 2.5
        [guest]
        requests_per_second = 7
        unsupported_version_status = 400
        enable_delay = "2m"
        [policy]
        announce = "when-enabled"
        enforce_notice = true
        idle_after = "12h"
        user_operations = 3
        [simulated]
        freeze = "1s"
        reboot = "2s"
        redeploy = "3s"
        preempt = "4s"
        terminate = "5s"
    """
    from_file = resolve(EMULATOR, flags={}, environ={}, file=written(tmp_path / "forewarn.toml", text))
    environ = {
        variable(key): value.strip('"')
        for key in KEYS
        for value in re.findall(rf"^ *{key.rpartition('.')[2]} = (.*)$", text, re.MULTILINE)
    }
    from_environment = resolve(EMULATOR, flags={}, environ=environ | {"FOREWARN_DATA": str(tmp_path / "here")})
    assert {origin.rank for origin in from_file.origins.values()} == {Rank.FILE}
    assert {origin.rank for origin in from_environment.origins.values()} == {Rank.ENVIRONMENT}
    assert from_file.settings == msgspec.structs.replace(from_environment.settings, fleet=tmp_path / "fleet.toml")
    assert from_file.settings.policy == PolicySettings(
        announce=Announce.WHEN_ENABLED, enforce_notice=True, idle_after=timedelta(hours=12), user_operations=3
    )


def test_paths_in_a_file_are_beside_it(tmp_path: Path) -> None:
    file = written(tmp_path / "forewarn.toml", 'data = "data"\nfleet = "/etc/fleet.toml"')
    settings = resolve(EMULATOR, flags={}, environ={}, file=file).settings
    assert (settings.data, settings.fleet) == (tmp_path / "data", Path("/etc/fleet.toml"))


def test_emulator_announces_always_limits_nothing_and_takes_any_notice() -> None:
    assert EMULATOR.settings == Settings(
        listen=Endpoint("127.0.0.1", 8180),
        operator=Endpoint("127.0.0.1", 8170),
        guest=GuestSettings(requests_per_second=None),
        policy=PolicySettings(announce=Announce.ALWAYS, enforce_notice=False, idle_after=None),
    )


def test_production_keeps_the_limits_of_the_protocol() -> None:
    assert PRODUCTION.settings == Settings(
        listen=None,
        guest=GuestSettings(requests_per_second=5, unsupported_version_status=404, enable_delay=timedelta(0)),
        policy=PolicySettings(
            announce=Announce.WHEN_ENABLED, enforce_notice=True, idle_after=timedelta(hours=24), user_operations=10
        ),
    )


BAD_VALUES = {
    "ephemeral": "perhaps",
    "listen": "127.0.0.1",
    "listen_link_local": "no/such",
    "network": "",
    "operator": "example.org:80",
    "manual_time": "2",
    "speed": "0",
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
}
PATHS = {"data", "fleet"}


def test_bad_values_are_known_for_every_key_that_can_have_one() -> None:
    assert set(BAD_VALUES) == set(KEYS) - PATHS


@pytest.mark.parametrize("key", BAD_VALUES)
def test_bad_value_is_refused_with_its_place_and_what_is_allowed(key: str, tmp_path: Path) -> None:
    section, _, name = key.rpartition(".")
    file = written(tmp_path / "forewarn.toml", f'{f"[{section}]" if section else ""}\n{name} = "{BAD_VALUES[key]}"')
    with pytest.raises(SettingsError) as in_file:
        resolve(EMULATOR, flags={}, environ={}, file=file)
    with pytest.raises(SettingsError) as as_flag:
        resolve(EMULATOR, flags={key: BAD_VALUES[key]}, environ={})
    complaint = f"{key} takes {KEYS[key].allowed}, not {BAD_VALUES[key]!r}"
    assert str(in_file.value) == f"{file}: {complaint}"
    assert str(as_flag.value) == f"--{key.replace('.', '-').replace('_', '-')}: {complaint}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sped = 2", "there is no setting sped; known here: data, ephemeral, fleet, listen"),
        ("[guest]\nrate = 5", "there is no setting guest.rate; known here: requests_per_second, unsupported_version"),
        ("[guests]\nrate = 5", "there is no setting guests; known here: data"),
        ("speed = ", "this is not TOML: "),
        ("speed = true", "speed takes a number above 0, at most 1000000, not True"),
        ("guest = 5", "there is no setting guest; known here: "),
    ],
    ids=["key", "key in section", "section", "toml", "type", "section as value"],
)
def test_wrong_file_is_refused_by_name(text: str, complaint: str, tmp_path: Path) -> None:
    file = written(tmp_path / "forewarn.toml", text)
    with pytest.raises(SettingsError) as refused:
        resolve(EMULATOR, flags={}, environ={}, file=file)
    assert str(refused.value).startswith(f"{file}: {complaint}")


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile) as refused:
        resolve(EMULATOR, flags={}, environ={}, file=tmp_path / "gone.toml")
    assert str(refused.value) == f"{tmp_path / 'gone.toml'}: No such file or directory"


@pytest.mark.parametrize(
    ("preset", "flags", "complaint"),
    [
        (EMULATOR, {"operator": "0.0.0.0:8170"}, "--operator: operator takes a loopback address"),
        (EMULATOR, {"listen": "[2001:db8::1]:80"}, "--listen: listen takes a loopback address"),
        (PRODUCTION, {"speed": "2"}, "--speed: speed is for the emulator"),
        (PRODUCTION, {"manual_time": True}, "--manual-time: manual_time is for the emulator"),
        (EMULATOR, {"data": "/x", "ephemeral": True}, "--data and --ephemeral: a data directory, or none"),
    ],
    ids=["operator beyond loopback", "guests beyond loopback", "speed", "manual time", "data and ephemeral"],
)
def test_what_a_preset_does_not_allow_is_refused(preset: Preset, flags: dict[str, object], complaint: str) -> None:
    with pytest.raises(SettingsError) as refused:
        resolve(preset, flags=flags, environ={})
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"])
def test_emulator_listens_on_any_loopback_address(host: str) -> None:
    operator = resolve(EMULATOR, flags={"operator": f"{host}:1"}, environ={}).settings.operator
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
    settings = resolve(EMULATOR, flags=flags, environ=environ).settings
    assert (settings.data, settings.ephemeral) == expected


def test_both_in_the_environment_are_a_contradiction() -> None:
    with pytest.raises(Contradiction, match="FOREWARN_DATA and FOREWARN_EPHEMERAL"):
        resolve(EMULATOR, flags={}, environ={"FOREWARN_DATA": "/d", "FOREWARN_EPHEMERAL": "1"})


def test_none_switches_off_what_a_preset_switches_on() -> None:
    flags = {"listen": "none"}
    settings = resolve(EMULATOR, flags=flags, environ={"FOREWARN_POLICY_IDLE_AFTER": "none"}).settings
    assert (settings.listen, settings.policy.idle_after) == (None, None)


def test_file_is_the_named_one_else_the_one_here(tmp_path: Path) -> None:
    assert settings_file(None, {}, tmp_path) is None
    here = written(tmp_path / "forewarn.toml", "")
    assert settings_file(None, {}, tmp_path) == here
    assert settings_file(None, {"FOREWARN_CONFIG": "/a.toml"}, tmp_path) == Path("/a.toml")
    assert settings_file("/b.toml", {"FOREWARN_CONFIG": "/a.toml"}, tmp_path) == Path("/b.toml")


def test_data_directory_is_found_whatever_else_is_set(tmp_path: Path) -> None:
    file = written(tmp_path / "forewarn.toml", 'data = "d"\noperator = "0.0.0.0:1"\nspeed = "wrong"')
    assert data_directory(None, {}, file) == tmp_path / "d"
    assert data_directory(None, {"FOREWARN_DATA": "/e"}, file) == Path("/e")
    assert data_directory("/f", {"FOREWARN_DATA": "/e"}, file) == Path("/f")
    assert data_directory(None, {}, None) is None


@pytest.mark.parametrize(
    ("system", "environ", "directory"),
    [
        ("linux", {"HOME": "/h"}, "/h/.local/share/forewarn"),
        ("linux", {"HOME": "/h", "XDG_DATA_HOME": "/x"}, "/x/forewarn"),
        ("linux", {"HOME": "/h", "XDG_DATA_HOME": "relative"}, "/h/.local/share/forewarn"),
        ("darwin", {"HOME": "/h", "XDG_DATA_HOME": "/x"}, "/h/Library/Application Support/forewarn"),
        ("win32", {"HOME": "/h", "LOCALAPPDATA": "/local"}, "/local/forewarn"),
    ],
    ids=["linux", "xdg", "relative xdg", "macos", "windows"],
)
def test_data_of_the_user_are_where_the_system_wants_them(system: str, environ: dict[str, str], directory: str) -> None:
    assert user_data_directory(environ, system=system) == Path(directory)


def test_reference_names_every_key_with_its_variable_and_presets() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| `(FOREWARN_[A-Z_]+)` \|", page, re.MULTILINE))
    assert rows == {key: variable(key) for key in KEYS}
