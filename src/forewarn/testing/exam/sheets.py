"""The examination paper: for each scenario, what a handler must do in it, and what it must not.

One story may be played in several surroundings; how fast its time runs is chosen so that dates stay true for the
program: a notice of minutes becomes one of a few seconds, by the real clock.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.resources import files

import msgspec

from forewarn.testing.exam.demands import (
    Approves,
    Asks,
    AsksOften,
    AsksRightly,
    Demand,
    DoesNotHammer,
    KeepsRunning,
    LeavesGone,
    LeavesOthers,
    LeavesStarted,
    Prepares,
    PreparesNothing,
    Recovers,
    RemembersApproval,
    RunsUntilStart,
    UsesNoProxy,
)
from forewarn.testing.scenario import Scenario, from_text, shipped_names, shipped_text

HOME = "forewarn.testing.exam.stories"
HANDLER = "web-0"
"""How the stories call the VM of the handler."""

NOTICE = timedelta(seconds=7)
"""What is left of an event's notice for the program, by the real clock."""

BEYOND = timedelta(seconds=1)
"""For how long a story waits for an approval beyond that."""

OTHER_HOST_NAME = "a-host-name"

ASKING: tuple[Demand, ...] = (Asks(), AsksRightly(), AsksOften(), DoesNotHammer())
RUNNING: tuple[Demand, ...] = (*ASKING, KeepsRunning())
ALWAYS: tuple[Demand, ...] = (*RUNNING, RemembersApproval(), LeavesStarted(), LeavesGone())
UNTIL_IT_IS_GONE: tuple[Demand, ...] = (*ASKING, RunsUntilStart(), RemembersApproval(), LeavesStarted())


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario of the exam.

    `notice` is the one that the story gives the handler's first event, and `lasts` what is left of it by the real
    clock: from them follows how fast time runs. `looks`: how often the program asks before the story goes on after a
    change. `behind`: by how much the service's time is behind at first, where the story lets that much pass.
    `retold`: changes to the text, where fast time needs them.
    """

    name: str
    demands: tuple[Demand, ...]
    notice: timedelta = timedelta(minutes=15)
    lasts: timedelta = NOTICE
    looks: int = 1
    behind: timedelta = timedelta(0)
    retold: Mapping[str, str] = {}
    has_proxy: bool = False
    host_name: str | None = None

    @property
    def speed(self) -> float:
        """How much faster than the story time runs."""
        return 1.0 if self.behind else self.notice / self.lasts

    @property
    def patience(self) -> float:
        """For how many seconds the story waits for an approval: a program may approve at the last moment."""
        return (self.lasts + BEYOND).total_seconds()

    def scenario(self, vm: str = HANDLER) -> Scenario:
        """Return the story, with the handler's VM under this name; who has that name in the story gets the other."""
        text = shipped_text(self.name) if self.name in shipped_names() else _own_text(self.name)
        for said, meant in self.retold.items():
            text = text.replace(said, meant)
        return from_text(self.name, _swapped(text, HANDLER, vm))


def sheets() -> Sequence[Sheet]:
    """Return the whole paper: the shipped scenarios, then those of the exam alone."""
    return PAPER


def _own(event: str = "E1") -> tuple[Demand, ...]:
    """Return what is demanded for an event of one's own that comes and goes."""
    return (Approves(event), Prepares(event), Recovers(event))


def _taken() -> tuple[Demand, ...]:
    """Return what is demanded for the event with which the VM is taken away."""
    return (Approves("E1"), Prepares("E1"))


PAPER: tuple[Sheet, ...] = (
    Sheet(
        name="cancelled-event",
        demands=(*RUNNING, RemembersApproval(), LeavesGone(), *_own()),
        notice=timedelta(minutes=30),
        lasts=timedelta(seconds=5),
        looks=4,
    ),
    Sheet(name="event-for-another-vm", demands=(*RUNNING, LeavesOthers(), PreparesNothing()), looks=2),
    Sheet(name="eviction-30s", demands=(*UNTIL_IT_IS_GONE, *_taken()), notice=timedelta(seconds=30)),
    Sheet(
        name="eviction-8s",
        demands=(*UNTIL_IT_IS_GONE, *_taken()),
        notice=timedelta(seconds=8),
        lasts=timedelta(seconds=8),
    ),
    Sheet(name="hardware-failure", demands=(*RUNNING, LeavesStarted(), LeavesGone()), looks=2),
    Sheet(name="host-update", demands=(*ALWAYS, LeavesOthers(), *_own())),
    Sheet(name="live-migration", demands=(*ALWAYS, *_own())),
    Sheet(name="predicted-failure", demands=(*ALWAYS, *_own()), notice=timedelta(days=3)),
    Sheet(
        name="service-off-for-a-day",
        demands=(*ALWAYS, LeavesOthers(), Approves("E3"), Prepares("E3"), Recovers("E3")),
        behind=timedelta(days=1),
        retold={"schedule Reboot web-0  ": "schedule Reboot web-0 in 7s  "},
    ),
    Sheet(name="storm-of-20", demands=(*ALWAYS, LeavesOthers(), *_own())),
    Sheet(name="terminate-on-scale-in", demands=(*UNTIL_IT_IS_GONE, *_taken()), notice=timedelta(minutes=5)),
    Sheet(name="two-events-at-once", demands=(*ALWAYS, *_own("E1"), *_own("E2"))),
    Sheet(name="user-restart", demands=(*ALWAYS, *_own())),
    Sheet(
        name="withdrawn-and-scheduled-again",
        demands=(*ALWAYS, Approves("E1"), Approves("E2", like="E1"), Prepares("E1"), Recovers("E2")),
        notice=timedelta(minutes=30),
        lasts=timedelta(seconds=5),
    ),
    Sheet(name="another-host-name", demands=(*ALWAYS, *_own()), host_name=OTHER_HOST_NAME),
    Sheet(name="answers-410", demands=(*ALWAYS, *_own())),
    Sheet(name="answers-429", demands=(*ALWAYS, *_own())),
    Sheet(name="answers-500", demands=(*ALWAYS, *_own())),
    Sheet(name="connection-reset", demands=(*ALWAYS, *_own())),
    Sheet(name="empty-body", demands=(*ALWAYS, *_own())),
    Sheet(name="extra-field", demands=(*ALWAYS, *_own())),
    Sheet(name="late-first-answer", demands=(*ALWAYS, *_own())),
    Sheet(name="proxy-in-the-environment", demands=(*ALWAYS, UsesNoProxy(), *_own()), has_proxy=True),
    Sheet(name="slow-answers", demands=(*ALWAYS, *_own())),
    Sheet(name="truncated-answer", demands=(*ALWAYS, *_own())),
    Sheet(
        name="unknown-event-type",
        demands=(*ALWAYS, LeavesOthers(), Approves("E2"), Prepares("E2"), Recovers("E2")),
        notice=timedelta(minutes=30),
    ),
    Sheet(name="wrong-content-type", demands=(*ALWAYS, *_own())),
    Sheet(name="wrong-date", demands=(*ALWAYS, *_own())),
)


def _own_text(name: str) -> str:
    return files(HOME).joinpath(f"{name}.txt").read_text("utf-8")


def _swapped(text: str, one: str, other: str) -> str:
    """Return the text with two names in each other's place, where they stand alone."""
    if one == other:
        return text
    names = {one: other, other: one}
    either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf"(?<![\w.-])(?:{either})(?![\w.-])", lambda found: names[found[0]], text)
