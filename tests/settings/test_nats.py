"""The settings of the cluster store."""

import pytest

from forewarn.settings.loader import setting_types
from forewarn.settings.nats import NatsSettings

TYPES = setting_types(NatsSettings)


@pytest.mark.parametrize(
    ("key", "value", "parsed"),
    [
        ("servers", ["nats://10.0.0.1:4222", "tls://nats.example"], ("nats://10.0.0.1:4222", "tls://nats.example")),
        ("servers", "nats://10.0.0.1:4222, nats://10.0.0.2:4222", ("nats://10.0.0.1:4222", "nats://10.0.0.2:4222")),
        ("servers", "none", ()),
        ("cell", "rack_7-a", "rack_7-a"),
        ("replicas", "5", 5),
        ("user", "control", "control"),
        ("user", "none", None),
    ],
)
def test_valid_value_is_parsed(key: str, value: object, parsed: object) -> None:
    assert TYPES[key].parse(value) == parsed


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("servers", ["nats://ada:secret@10.0.0.1:4222"]),
        ("servers", ["http://10.0.0.1:4222"]),
        ("servers", ["nats://10.0.0.1:4222", "nats://10.0.0.1:4222"]),
        ("servers", ["nats://"]),
        ("servers", ["nats://10.0.0.1:4222/path"]),
        ("servers", []),
        ("cell", "a.b"),
        ("cell", "x" * 33),
        ("cell", ">"),
        ("replicas", 2),
        ("replicas", True),
        ("user", ""),
    ],
)
def test_invalid_value_is_refused(key: str, value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        TYPES[key].parse(value)
