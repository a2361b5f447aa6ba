"""Structs of the core from a file: each field is read by its type, and errors name the key."""

from datetime import timedelta
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from forewarn.api.table_reader import read_struct
from forewarn.core.campaign.spec import CampaignPolicy, HttpCheck, Limit, Weekday, Window
from forewarn.core.text import Name
from forewarn.settings.file_reader import FileError, FileValue


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A struct with fields that a policy does not have."""

    label: Annotated[Name, Meta(examples=["kernel"])]
    day: Annotated[Weekday, Meta(extra={"choices": Weekday})] = Weekday.MON
    day_of_release: Weekday
    settle_for: timedelta
    gate: Name | HttpCheck


class WiderPolicy(CampaignPolicy, frozen=True, kw_only=True):
    """A policy with one more key, as a later version could have."""

    settle_for: Annotated[timedelta, Meta(description="How long to watch a scope after its wave.")] = timedelta(0)
    halves: Annotated[int, Meta(ge=1, le=2)] | None = 2
    retries: Annotated[int, Meta(ge=0)] = 0
    load: Annotated[int, Meta(le=9)] = 0
    seed: int = 0


def read(struct: type[msgspec.Struct], content: object) -> Any:
    return read_struct(FileValue("f.toml", "", content), struct)


def test_new_policy_key_is_read_automatically() -> None:
    wide = read(WiderPolicy, {"gap": "1h", "settle_for": "10m", "halves": "none"})
    assert wide == WiderPolicy(gap=timedelta(hours=1), settle_for=timedelta(minutes=10), halves=None)
    assert read(WiderPolicy, {}) == WiderPolicy()
    with pytest.raises(FileError, match=r"^f.toml: settle_for: 10 is not allowed: use a duration such as "):
        read(WiderPolicy, {"settle_for": 10})
    with pytest.raises(FileError, match=r"^f.toml: halves: 3 is not allowed: use an integer from 1 to 2"):
        read(WiderPolicy, {"halves": 3})
    with pytest.raises(FileError, match=r"^f.toml: retries: -1 is not allowed: use an integer of at least 0$"):
        read(WiderPolicy, {"retries": -1})
    with pytest.raises(FileError, match=r"^f.toml: load: 10 is not allowed: use an integer of at most 9$"):
        read(WiderPolicy, {"load": 10})
    with pytest.raises(FileError, match=r'^f.toml: seed: "x" is not allowed: use an integer$'):
        read(WiderPolicy, {"seed": "x"})
    with pytest.raises(FileError, match=r"^f.toml: settle_fro: unknown key; did you mean settle_for\?"):
        read(WiderPolicy, {"settle_fro": "10m"})


def test_struct_can_be_a_string() -> None:
    policy = read(CampaignPolicy, {"windows": ["sat 22:00-04:00"], "vms_at_once": "10%", "hosts_at_once": 3})
    assert policy.windows == (Window(days=(Weekday.SAT,), start="22:00", end="04:00"),)
    assert (policy.vms_at_once, policy.hosts_at_once) == (Limit(percent=10), Limit(number=3))


@pytest.mark.parametrize(
    ("struct", "content", "message"),
    [
        (Sample, {}, 'label: required key is missing: use a name in quotes such as "kernel"'),
        (Sample, {"label": "a b"}, "label: 'a b': use 1 to 128 letters"),
        (
            Sample,
            {"label": "a"},
            'day_of_release: required key is missing: use "mon", "tue", "wed", "thu", "fri", "sat" or "sun"',
        ),
        (
            Sample,
            {"label": "a", "day_of_release": "mon"},
            'settle_for: required key is missing: use a duration such as "5m"',
        ),
        (
            Sample,
            {"label": "a", "day_of_release": "mon", "settle_for": "5m"},
            "gate: required key is missing: use a name in quotes, or a table with url",
        ),
        (CampaignPolicy, "fast", '"fast" is not allowed: use a table'),
        (CampaignPolicy, {"gate": 5}, "gate: 5 is not allowed: use a name in quotes, or a table with url"),
        (
            CampaignPolicy,
            {"gate": {}},
            'gate.url: required key is missing: use a text in quotes such as "http://127.0.0.1',
        ),
        (CampaignPolicy, {"vms_at_once": {"number": 10}}, "vms_at_once: a table is not allowed: use a number such"),
        (CampaignPolicy, {"windows": [5]}, 'windows[0]: 5 is not allowed: use a text such as "sat,sun 22:00-04:00"'),
        (CampaignPolicy, {"blackouts": [5]}, "blackouts[0]: 5 is not allowed: use a text such as"),
        (CampaignPolicy, {"gap": "none"}, "gap: 'none' is not a duration"),
        (CampaignPolicy, {"notice": "none"}, "notice: 'none' is not a duration"),
        (CampaignPolicy, {"waves": "host"}, 'waves: "host" is not allowed: use "update-domain"'),
        (CampaignPolicy, {"advance": 1}, "advance: 1 is not allowed: use true or false"),
    ],
)
def test_error_names_the_key_and_allowed_values(struct: type[msgspec.Struct], content: object, message: str) -> None:
    with pytest.raises(FileError) as refused:
        read(struct, content)
    assert str(refused.value).startswith(f"f.toml: {message}")
