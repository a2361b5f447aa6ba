"""One line in the log for each phase of an event, with all that is known of it: for central logging."""

import logging

from forewarn.agent.handlers.configured import Configured
from forewarn.agent.handlers.port import Done, Ended, Errand
from forewarn.agent.handlers.saying import facts
from forewarn.agent.settings import LogHandlerSettings
from forewarn.clock import Clock

log = logging.getLogger("forewarn.agent.event")


class LogHandler(Configured[LogHandlerSettings]):
    """Logs."""

    def __init__(self, settings: LogHandlerSettings, *, clock: Clock | None = None) -> None:
        super().__init__(settings, clock)

    async def tell(self, errand: Errand) -> Ended:
        """Write the line. The facts stand beside the sentence, each under a name of its own."""
        said = {f"event_{name}": value for name, value in facts(errand, self._clock.now()).items()}
        log.info("%s of %s: %s", errand.event.type, errand.name, errand.phase.value, extra=said)
        return Done()
