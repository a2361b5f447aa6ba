"""Gate settings: tables by name, as a file, a variable or a flag gives them."""

import re
from datetime import timedelta
from typing import get_args

import msgspec
import pytest

from forewarn.core.campaign.spec import HttpCheck
from forewarn.settings.errors import SettingsError
from forewarn.settings.gates import Gate, Gates, GateSettings
from forewarn.settings.loader import setting_types
from forewarn.settings.types import SettingType

(_, TYPE) = get_args(Gates)
assert isinstance(TYPE, SettingType)

WEB = Gate("web", GateSettings(url="https://h/ok", retries=0))
DB = Gate("db", GateSettings(command=("/bin/ok", "-q"), timeout=timedelta(seconds=3)))
TABLES = {
    "web": {"url": "https://h/ok", "retries": 0},
    "db": {"command": ["/bin/ok", "-q"], "timeout": "3s"},
}


@pytest.mark.parametrize(
    "written",
    [
        TABLES,
        '{"web": {"url": "https://h/ok", "retries": 0}, "db": {"command": "/bin/ok -q", "timeout": "3s"}}',
        ['{"web": {"url": "https://h/ok", "retries": 0}}', {"db": TABLES["db"]}],
        [str(WEB), str(DB)],
    ],
    ids=["tables", "JSON", "several", "as they are written"],
)
def test_gates_are_read_and_sorted_by_name(written: object) -> None:
    assert TYPE.parse(written) == (DB, WEB)


def test_none_is_no_gate() -> None:
    assert TYPE.parse("none") == ()


def test_defaults_of_a_gate() -> None:
    assert TYPE.parse({"web": {"url": "http://h"}}) == (
        Gate(
            "web",
            GateSettings(
                command=(),
                url="http://h",
                expect_status=200,
                timeout=timedelta(seconds=10),
                retries=2,
                pause=timedelta(seconds=10),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ({"web": 5}, "web"),
        ({"web": {}}, "web"),
        ({"web": {"url": "none"}}, "web"),
        ({"web": {"url": "http://h", "command": ["/bin/a"]}}, "web"),
        ({"web": {"uri": "http://h"}}, "web.uri"),
        ({"web": {"url": "h:80"}}, "web.url"),
        ({"web": {"command": ["relative"]}}, "web.command"),
        ({"web": {"url": "http://h", "retries": 101}}, "web.retries"),
        ({"web": {"url": "http://h", "expect_status": 99}}, "web.expect_status"),
        ({"web": {"url": "http://h", "timeout": "0s"}}, "web.timeout"),
        ({"web": {"url": "http://h", "pause": "25h"}}, "web.pause"),
    ],
)
def test_wrong_part_of_a_gate_is_refused_by_its_key(written: object, key: str) -> None:
    with pytest.raises(SettingsError, match=rf"^: {re.escape(key)}(:| takes) "):
        TYPE.parse(written)


@pytest.mark.parametrize("written", ["web", "[]", 5, {"a b": {"url": "http://h"}}], ids=str)
def test_value_that_has_no_tables_by_name_is_refused(written: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        TYPE.parse(written)


def test_every_field_of_a_gate_is_a_key() -> None:
    assert tuple(setting_types(GateSettings)) == GateSettings.__struct_fields__


def test_gate_of_a_campaign_has_the_same_keys_and_defaults() -> None:
    assert GateSettings(**msgspec.structs.asdict(HttpCheck(url="http://h"))) == GateSettings(url="http://h")
    assert ("command", *HttpCheck.__struct_fields__) == GateSettings.__struct_fields__
