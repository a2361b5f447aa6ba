"""Log handler: writes one structured log line for each phase of an event."""

import logging

from forewarn.agent.handlers.base import CallResult, Done, HandlerBase, HandlerContext
from forewarn.agent.handlers.templates import template_facts
from forewarn.agent.settings import LogHandlerSettings
from forewarn.clock import Clock

log = logging.getLogger("forewarn.agent.event")


class LogHandler(HandlerBase[LogHandlerSettings]):
    """Logs."""

    def __init__(self, settings: LogHandlerSettings, *, clock: Clock | None = None) -> None:
        super().__init__(settings, clock)

    async def notify(self, context: HandlerContext) -> CallResult:
        """Write the log line, with the facts of the event as separate fields."""
        fields = {f"event_{name}": value for name, value in template_facts(context, self._clock.now()).items()}
        log.info("%s of %s: %s", context.event.type, context.name, context.phase.value, extra=fields)
        return Done()
