"""Handler contexts (event, phase, attempt) for tests of handlers."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from forewarn.agent.handlers.base import HandlerCall, HandlerContext, Phase
from forewarn.agent.handlers.programs import HandlerPrograms
from forewarn.client.document import Event, Status
from forewarn.core.event import EventType, Source

NOW = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)
EVENT = Event(
    id="602D9444-D2CD-49C7-8624-8643E7171297",
    status=Status.SCHEDULED,
    type=EventType.REBOOT,
    resources=("web_0", "web_1"),
    not_before=NOW + timedelta(minutes=15),
    description='Host "maintenance";\n$(reboot) <now> & \\ ü',
    source=Source.PLATFORM,
    duration=timedelta(seconds=8.5),
)


def handler_context(phase: Phase = Phase.PREPARE, **more: Any) -> HandlerContext:
    """Return the context of a phase, with the handler call if the phase has one."""
    call = HandlerCall(phase.value) if phase in (Phase.PREPARE, Phase.RECOVER) else None
    known = HandlerContext(
        event=EVENT,
        name="web_0",
        phase=phase,
        call=call,
        attempt=1,
        deadline=EVENT.deadline,
        time_limit=timedelta(seconds=30),
        is_leader=True,
    )
    return msgspec.structs.replace(known, **more)


NO_NOTES = HandlerPrograms(Path("/dev/null/nowhere"), "any")
"""Programs without notes on disk."""

PREPARE, RECOVER = handler_context(Phase.PREPARE), handler_context(Phase.RECOVER)
