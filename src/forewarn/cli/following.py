"""Following events to their end, or to where only a person can let them go on."""

from collections.abc import Sequence

import msgspec
import typer

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import CannotReach, NotFound
from forewarn.cli.countdown import ServiceTime
from forewarn.cli.exits import INTERRUPTED, Exit
from forewarn.cli.feed import TICK, Back, Feed, News, Quiet, trouble_after
from forewarn.cli.output import say
from forewarn.cli.reaching import Asked
from forewarn.cli.showing import SHORT_ID
from forewarn.cli.views import View, view_for
from forewarn.core.event import Cause
from forewarn.core.impact import SETTLED, STUCK
from forewarn.core.scope import EventOutcome


def follow(asked: Asked, made: Sequence[v1.Made]) -> None:
    """Follow events to their end, and end as they did. Ctrl-C ends the watching, not the events.

    Where nothing goes on unless a person decides, it ends with the next step instead of waiting for that person.
    """
    try:
        feed = Feed(asked.api)
        feed.open()
        followed = Followed(asked.api, made)
        with view_for(asked.output) as view:
            _follow(feed, followed, view)
    except KeyboardInterrupt:
        again = " ".join(each.id for each in made)
        say(f"Stopped watching; nothing else has stopped. To watch again: forewarn event watch {again}")
        raise typer.Exit(INTERRUPTED) from None
    for event in followed.stuck:
        say(_next_step(event))
    if not followed.went_well:
        raise typer.Exit(Exit.FAILED)


def _next_step(event: v1.Event) -> str:
    vms = ", ".join(impact.vm for impact in event.impacts if impact.state in STUCK)
    id_ = event.id[:SHORT_ID]
    return (
        f"The work on {vms} waits for a person: `forewarn event retry {id_}` has it done once more, "
        f"`forewarn event resolve {id_}` ends it."
    )


def _follow(feed: Feed, followed: "Followed", view: View) -> None:
    view.show(followed.refresh(), followed.time, "")
    trouble = ""
    while not followed.is_over and not followed.needs_a_person:
        news = list(feed.wait(TICK))
        trouble = trouble_after(news, trouble)
        changed: list[v1.EventStory] = []
        if any(map(followed.concerns, news)):
            try:
                changed, trouble = followed.refresh(), ""
            except CannotReach as error:
                trouble = str(error)
        view.show(changed, followed.time, trouble)


class Followed:
    """The events that are followed, as they were when the service was asked last."""

    def __init__(self, api: ApiClient, made: Sequence[v1.Made]) -> None:
        self._api = api
        self._scopes = {each.id: each.scope for each in made}
        self.stories: dict[str, v1.EventStory] = {}
        self._around: dict[str, list[v1.Event]] = {}
        """What else is open in their scopes: an event may wait for another that nobody follows."""
        self.time = ServiceTime(api.clock())

    @property
    def is_over(self) -> bool:
        """Whether all have ended."""
        return len(self.stories) == len(self._scopes) and all(story.event is None for story in self.stories.values())

    @property
    def stuck(self) -> list[v1.Event]:
        """The events on which nothing more is done unless a person decides, whether they are followed or in the way."""
        around = {event.id: event for events in self._around.values() for event in events}
        return [event for event in around.values() if _is_stuck(event) and self._matters(event)]

    @property
    def needs_a_person(self) -> bool:
        """Whether each that has not ended is stuck itself, or waits for one that is."""
        if len(self.stories) < len(self._scopes):
            return False
        still_open = [story.event for story in self.stories.values() if story.event is not None]
        return bool(still_open) and all(
            _is_stuck(event) or any(_waits_for(event, other) for other in self.stuck) for event in still_open
        )

    def _matters(self, event: v1.Event) -> bool:
        still_open = (story.event for story in self.stories.values() if story.event is not None)
        return any(each.id == event.id or _waits_for(each, event) for each in still_open)

    @property
    def went_well(self) -> bool:
        """Whether all were completed."""
        return all(story.outcome is EventOutcome.COMPLETED for story in self.stories.values())

    def concerns(self, news: News) -> bool:
        """Tell whether the events may have changed."""
        match news:
            case v1.JournalEntry():
                return news.kind != "scope" or news.record in self._scopes.values()
            case _:
                return isinstance(news, Quiet | Back)

    def refresh(self) -> list[v1.EventStory]:
        """Ask the service, and return what has changed."""
        self.time = ServiceTime(self._api.clock())
        waiting = {id_: scope for id_, scope in self._scopes.items() if not self._has_ended(id_)}
        self._around = {scope: self._open_in(scope) for scope in set(waiting.values())}
        still_open = {event.id: event for events in self._around.values() for event in events}
        changed = []
        for id_ in waiting:
            story = self._story(id_, still_open.get(id_))
            if story != self.stories.get(id_):
                self.stories[id_] = story
                changed.append(story)
        return changed

    def _has_ended(self, id_: str) -> bool:
        return id_ in self.stories and self.stories[id_].event is None

    def _open_in(self, scope: str) -> list[v1.Event]:
        try:
            return list(self._api.events(scope=scope))
        except NotFound:
            # A scope that had but one VM may go with it.
            return []

    def _story(self, id_: str, event: v1.Event | None) -> v1.EventStory:
        before = self.stories.get(id_)
        if event is None or before is None:
            return msgspec.structs.replace(self._api.event(id_), timeline=())
        return msgspec.structs.replace(before, event=event)


def _is_stuck(event: v1.Event) -> bool:
    """Tell whether a person decides how it goes on: work has failed or is unknown, and none is under way."""
    states = {impact.state for impact in event.impacts}
    return bool(states & STUCK) and states <= STUCK | SETTLED


def _waits_for(event: v1.Event, stuck: v1.Event) -> bool:
    """Tell whether it cannot have its turn while the other one is stuck."""
    return (
        event.started_at is None
        and event.scope == stuck.scope
        and event.update_domain != stuck.update_domain
        and event.cause is stuck.cause is Cause.MAINTENANCE
    )
