"""What commands show that make events."""

from forewarn.api import v1
from forewarn.cli.output import Output, moment_text, say, write_json
from forewarn.cli.reaching import Asked
from forewarn.cli.showing import mention_hold, write_events


def show_made(asked: Asked, scheduled: v1.Scheduled, *, wait: bool) -> None:
    """Show the events of a request, or follow them to their end; say first of which of them no VM is told."""
    for event in scheduled.events:
        if not event.announced:
            say(_unannounced(event))
    if wait and scheduled.made:
        from forewarn.cli.following import follow

        follow(asked, scheduled.made)
        return
    if asked.output is Output.JSON:
        write_json(scheduled)
    elif scheduled.events:
        write_events(scheduled.events)
    still_open = {event.id for event in scheduled.events}
    for made in scheduled.made:
        if made.id not in still_open:
            say(f"Event {made.id} in scope {made.scope} has ended already.")
    mention_hold(asked)


def _unannounced(event: v1.Event) -> str:
    when = "has started" if event.status == "Started" else f"starts at {moment_text(event.not_before)}"
    return (
        f"Nobody in scope {event.scope} is told of event {event.id}, which {when}: none of its VMs asks for events. "
        f"`forewarn doctor {event.scope}/{event.vms[0]}` says more."
    )
