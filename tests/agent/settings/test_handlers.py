"""Settings of each kind of handler."""

import pytest

from forewarn.agent.phases import Phase
from forewarn.agent.settings.handlers import KINDS, HandlerSettings, NotifySettings, WebhookSettings
from forewarn.settings.loader import setting_types


def test_kinds_are_named_as_in_a_file() -> None:
    assert list(KINDS) == ["exec", "systemd", "http", "haproxy", "readiness", "notify", "log"]
    assert [name for name, kind in KINDS.items() if kind.is_notify_only] == ["notify", "log"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_field_but_the_name_is_a_setting(kind: type[HandlerSettings]) -> None:
    assert [*setting_types(kind)] == [field for field in kind.__struct_fields__ if field != "name"]
    common = {"importance": 50, "retries": 2, "ready_despite_failure": False}
    assert {key: getattr(kind(name="x"), key) for key in common} == common


def test_default_phases_of_webhook_and_notify() -> None:
    assert WebhookSettings(name="x").phases == (Phase.PREPARE, Phase.RECOVER)
    assert NotifySettings(name="x").phases == (Phase.NOTICE, Phase.RECOVER)
