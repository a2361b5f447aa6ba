"""The states of an event, from the table of legal transitions."""

from collections import defaultdict

from forewarn.core.event import TRANSITIONS, State
from tools.pictures.state_machine import draw_states
from tools.pictures.svg import AMBER, BLUE, PLAIN

COLOURS = {State.NONE.value: PLAIN, State.SCHEDULED.value: BLUE, State.STARTED.value: AMBER, State.GONE.value: PLAIN}


def draw() -> str:
    """Draw the picture."""
    edges: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for (source, trigger), transition in TRANSITIONS.items():
        edges[source.value, transition.to.value].append(trigger.value)
    return draw_states(list(COLOURS), edges, title="The states of an event", colours=COLOURS)
