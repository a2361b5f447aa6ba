"""The phases of the agent's workflow, from the table that the agent follows."""

from collections import defaultdict

from forewarn.agent.phases import PHASE_TRANSITIONS, Phase
from tools.pictures.state_machine import draw_states
from tools.pictures.svg import AMBER, BLUE, GREEN, PLAIN

DELETED = "deleted"
COLOURS = {phase.value: BLUE for phase in Phase} | {
    Phase.IMPACT.value: AMBER,
    Phase.RECOVER.value: GREEN,
    DELETED: PLAIN,
}


def draw() -> str:
    """Draw the picture."""
    edges: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for (source, trigger), target in PHASE_TRANSITIONS.items():
        edges[source.value, target.value].append(trigger.value)
    edges[Phase.RECOVER.value, DELETED].append("recovered")
    states = [*(phase.value for phase in Phase), DELETED]
    return draw_states(states, edges, title="The phases of an event in the agent", colours=COLOURS)
