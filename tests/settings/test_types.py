"""Types of settings: which values each takes, and how they are written."""

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest

from forewarn.settings import types
from forewarn.settings.errors import (
    InvalidSetting,
)
from forewarn.settings.load import load_settings
from forewarn.settings.schema import (
    EMULATOR,
)
from forewarn.settings.types import (
    GuestInterface,
    ListenAddress,
    LogFormat,
    LogLevel,
    PlatformName,
    SettingType,
    format_value,
    resolve_path,
)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"])
def test_emulator_listens_on_any_loopback_address(host: str) -> None:
    operator = load_settings(EMULATOR, flags={"operator": f"{host}:1"}, environ={}).settings.operator
    assert operator.is_loopback


@pytest.mark.parametrize("said", ["br0,br0", "br0=", "=blue", "br0=blue=green", ","])
def test_invalid_interfaces_are_refused(said: str) -> None:
    with pytest.raises(InvalidSetting):
        load_settings(EMULATOR, flags={"listen_link_local": said}, environ={})


def parser(annotation: object) -> Callable[[object], object]:
    return next(item for item in get_args(annotation) if isinstance(item, SettingType)).parse


ACCEPTED: dict[str, tuple[object, dict[object, object]]] = {
    "flag": (types.Flag, {True: True, "Yes": True, "1": True, "false": False, "NO": False}),
    "name": (types.Name, {"web-0": "web-0"}),
    "path": (types.PathOrNone, {"/d": Path("/d"), Path("/e"): Path("/e"), "none": None}),
    "fleet": (types.FleetSource, {"/f.toml": Path("/f.toml"), "demonstration": "demonstration", "none": None}),
    "count": (types.Count, {1: 1, "7": 7}),
    "count or none": (types.CountOrNone, {"none": None, 1: 1}),
    "retries": (types.Retries, {0: 0, "100": 100}),
    "status": (types.AnyStatus, {100: 100, "599": 599}),
    "error status": (types.ErrorStatus, {400: 400, "499": 499}),
    "url": (types.UrlOrNone, {"https://h:8443/x?y": "https://h:8443/x?y", "none": None}),
    "urls": (types.Urls, {"http://a https://b": ("http://a", "https://b"), "none": ()}),
    "speed": (types.Speed, {"0.5": 0.5, 1_000_000: 1_000_000.0}),
    "listen": (
        types.Listen,
        {
            "127.0.0.1:0": ListenAddress("127.0.0.1", 0),
            "[::1]:65535": ListenAddress("::1", 65_535),
            "localhost:80": ListenAddress("127.0.0.1", 80),
        },
    ),
    "listen or none": (types.ListenOrNone, {"none": None, "127.0.0.1:1": ListenAddress("127.0.0.1", 1)}),
    "guest listen": (
        types.GuestListenOrNone,
        {
            "0.0.0.0": ListenAddress("0.0.0.0", 8180),
            "[::]": ListenAddress("::", 8180),
            "localhost": ListenAddress("127.0.0.1", 8180),
            "127.0.0.1:0": ListenAddress("127.0.0.1", 0),
            "none": None,
        },
    ),
    "interfaces": (
        types.Interfaces,
        {"br0, br1=green": (GuestInterface("br0"), GuestInterface("br1", "green")), "none": ()},
    ),
    "duration": (types.Duration, {"0s": timedelta(0), "1h30m": timedelta(minutes=90)}),
    "duration or none": (types.DurationOrNone, {"none": None, "1d": timedelta(days=1)}),
    "duration within a day": (types.DurationWithinDay, {"24h": timedelta(days=1), "0.001s": timedelta(milliseconds=1)}),
    "platform": (types.PlatformSetting, {"command": PlatformName.COMMAND}),
    "program": (types.Program, {"/bin/a -x 'b c'": ("/bin/a", "-x", "b c"), ("/bin/a",): ("/bin/a",), "none": ()}),
    "log format": (types.Format, {"json": LogFormat.JSON}),
    "log level": (types.Level, {"debug": LogLevel.DEBUG}),
}
REFUSED: dict[str, tuple[object, tuple[object, ...]]] = {
    "flag": (types.Flag, ("perhaps", "", 1, None)),
    "name": (types.Name, ("", "a b", 1)),
    "path": (types.PathOrNone, ("", "a\0b", "~no-such-user/x", 1)),
    "count": (types.Count, (0, True, "1.5", "", None)),
    "retries": (types.Retries, (-1, 101)),
    "status": (types.AnyStatus, (99, 600)),
    "error status": (types.ErrorStatus, (399, 500)),
    "url": (types.UrlOrNone, ("ftp://h", "http://", "http://h:0", "http://h/a b", "http://h/\n", "h:80")),
    "urls": (types.Urls, ("http://a http://a", "", [])),
    "speed": (types.Speed, (0, -1, True, "nan", "1e7", "")),
    "listen": (types.Listen, ("127.0.0.1", "127.0.0.1:65536", "127.0.0.1:-1", "example.org:80", ":80", "none")),
    "guest listen": (types.GuestListenOrNone, ("8180", "::1", "example.org", "0.0.0.0:", "", 1)),
    "duration within a day": (types.DurationWithinDay, ("0s", "24h1s", "none")),
    "platform": (types.PlatformSetting, ("libvirt", "")),
    "program": (types.Program, ("maintain", "/bin/a\0", [], "/bin/a 'b", [1])),
    "log format": (types.Format, ("xml",)),
}


@pytest.mark.parametrize("kind", ACCEPTED)
def test_value_is_parsed(kind: str) -> None:
    annotation, values = ACCEPTED[kind]
    assert {written: parser(annotation)(written) for written in values} == values


@pytest.mark.parametrize(("kind", "written"), [(kind, value) for kind in REFUSED for value in REFUSED[kind][1]])
def test_value_that_is_not_allowed_is_refused(kind: str, written: object) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        parser(REFUSED[kind][0])(written)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "none"),
        ((), "none"),
        (True, True),
        (5, 5),
        (timedelta(minutes=90), "1h30m"),
        ((GuestInterface("br0"), GuestInterface("br1", "green")), ["br0", "br1=green"]),
        (ListenAddress("::1", 80), "[::1]:80"),
        (LogFormat.JSON, "json"),
        (Path("/d"), "/d"),
    ],
)
def test_value_is_written_as_a_settings_file_takes_it(value: object, written: object) -> None:
    assert format_value(value) == written


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False), ("::", False)]
)
def test_loopback_address_is_recognised(host: str, loopback: bool) -> None:
    assert ListenAddress(host, 1).is_loopback is loopback


@pytest.mark.parametrize(
    ("text", "path"), [("data", Path("/etc/data")), ("/d", Path("/d")), ("~/d", "~/d"), ("a\0b", "a\0b")], ids=ascii
)
def test_path_in_a_file_is_beside_it_unless_it_is_in_a_home(text: str, path: Path | str) -> None:
    assert resolve_path(Path("/etc"), text) == path


def test_log_level_has_the_number_of_the_logging_module() -> None:
    assert [level.number for level in LogLevel] == [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR]
