"""Tests of the commands as values: defaults, equality, and the union of all commands."""

from datetime import timedelta
from typing import get_args

import msgspec
import pytest

from forewarn.core.event import EventType
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.grammar import COMMAND_SYNTAX


def test_union_has_every_command_and_every_command_has_syntax() -> None:
    assert set(get_args(commands.Command)) == set(commands.BaseCommand.__subclasses__())
    assert {syntax.command for syntax in COMMAND_SYNTAX.values()} == set(get_args(commands.Command))


def test_omitted_values_have_defaults() -> None:
    assert commands.AddScope(scope="web", kind=ScopeKind.AVAILABILITY_SET) == commands.AddScope(
        scope="web",
        kind=ScopeKind.AVAILABILITY_SET,
        approval=ApprovalRule.ANY,
        auto_approve=(),
        priority=None,
        terminate_notice=None,
    )
    assert commands.AddVms(names=("web-0",)) == commands.AddVms(names=("web-0",), scope=None, domain=0, host=None)
    assert commands.RemoveVm(vm="web-0") == commands.RemoveVm(vm="web-0", force=False, by=commands.OPERATOR, why="")


def test_host_can_be_removed_or_left_unchanged() -> None:
    assert commands.ChangeVm(vm="web-0").host is msgspec.UNSET
    assert commands.ChangeVm(vm="web-0") != commands.ChangeVm(vm="web-0", host=None)


def test_idle_time_can_be_removed_or_left_unchanged() -> None:
    assert commands.SetPolicy().idle is msgspec.UNSET
    assert commands.SetPolicy() != commands.SetPolicy(idle=None)


def test_commands_are_equal_by_type_and_fields() -> None:
    assert commands.Wait(time=timedelta(minutes=1)) == commands.Wait(time=timedelta(seconds=60))
    different: set[commands.BaseCommand] = {commands.State(scope="web"), commands.Wake(scope="web")}
    assert len(different | {commands.State(scope="web")}) == 2


def test_command_cannot_be_changed() -> None:
    command = commands.Fail(vms=("web-0",), type=EventType.REBOOT)
    with pytest.raises(AttributeError):
        command.vms = ("web-1",)  # type: ignore[misc]
    assert command.vms == ("web-0",)
