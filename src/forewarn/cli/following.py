"""Following events to their end."""

from collections.abc import Iterable, Sequence

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
from forewarn.cli.views import View, view_for
from forewarn.core.scope import Outcome


def follow(asked: Asked, made: Sequence[v1.Made]) -> None:
    """Follow events to their end, and end as they did. Ctrl-C ends the watching, not the events."""
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
    if not followed.went_well:
        raise typer.Exit(Exit.FAILED)


def _follow(feed: Feed, followed: "Followed", view: View) -> None:
    view.show(followed.refresh(), followed.time, "")
    trouble = ""
    while not followed.is_over:
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
        self.time = ServiceTime(api.clock())

    @property
    def is_over(self) -> bool:
        """Whether all have ended."""
        return len(self.stories) == len(self._scopes) and all(story.event is None for story in self.stories.values())

    @property
    def went_well(self) -> bool:
        """Whether all were completed."""
        return all(story.outcome is Outcome.COMPLETED for story in self.stories.values())

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
        still_open = {event.id: event for scope in set(waiting.values()) for event in self._open_in(scope)}
        changed = []
        for id_ in waiting:
            story = self._story(id_, still_open.get(id_))
            if story != self.stories.get(id_):
                self.stories[id_] = story
                changed.append(story)
        return changed

    def _has_ended(self, id_: str) -> bool:
        return id_ in self.stories and self.stories[id_].event is None

    def _open_in(self, scope: str) -> Iterable[v1.Event]:
        try:
            return list(self._api.events(scope=scope))
        except NotFound:
            # A scope that had but one VM may go with it.
            return ()

    def _story(self, id_: str, event: v1.Event | None) -> v1.EventStory:
        before = self.stories.get(id_)
        if event is None or before is None:
            return msgspec.structs.replace(self._api.event(id_), timeline=())
        return msgspec.structs.replace(before, event=event)
