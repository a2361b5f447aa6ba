"""The examination paper: complete, playable on the rules, and within its time."""

from collections import Counter

import pytest

from forewarn.testing.exam import LIMIT, Sheet, sheets
from forewarn.testing.scenario import CoreStage, play, shipped_names


def name_of(sheet: Sheet) -> str:
    return sheet.name


def test_every_shipped_scenario_is_in_the_exam_once() -> None:
    names = [sheet.name for sheet in sheets()]
    assert set(shipped_names()) <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("sheet", sheets(), ids=name_of)
def test_demands_of_a_scenario_have_names_of_their_own(sheet: Sheet) -> None:
    assert [key for key, times in Counter(demand.key for demand in sheet.demands).items() if times > 1] == []


@pytest.mark.parametrize("sheet", sheets(), ids=name_of)
@pytest.mark.parametrize("vm", ["web-0", "web-1", "frontend_3"])
def test_story_can_be_told_of_a_vm_of_any_name(sheet: Sheet, vm: str) -> None:
    scenario = sheet.scenario(vm)
    assert scenario.handler == vm
    for _ in play(scenario.story, CoreStage()):
        pass


@pytest.mark.parametrize("sheet", sheets(), ids=name_of)
def test_program_may_approve_at_the_last_moment(sheet: Sheet) -> None:
    assert sheet.lasts.total_seconds() < sheet.patience < LIMIT / 2
