"""All pictures by name."""

from collections.abc import Callable
from pathlib import Path

from tools.pictures import (
    agent_phases,
    campaign_plan,
    cluster,
    endpoint,
    event_states,
    event_timeline,
    exam_terminal,
    fleet,
    hosts,
    main_loop,
    packages,
)

FOLDER = Path(__file__).resolve().parents[2] / "docs/pictures"

PICTURES: dict[str, Callable[[], str]] = {
    "agent-phases": agent_phases.draw,
    "campaign-plan": campaign_plan.draw,
    "cluster": cluster.draw,
    "endpoint": endpoint.draw,
    "event-states": event_states.draw,
    "event-timeline": event_timeline.draw,
    "exam": exam_terminal.draw,
    "fleet": fleet.draw,
    "hosts": hosts.draw,
    "main-loop": main_loop.draw,
    "packages": packages.draw,
}
