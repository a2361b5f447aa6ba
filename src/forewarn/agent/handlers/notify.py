"""People are told, by whatever Apprise knows: mail, chat, SMS. Needs the extra `[notify]`."""

import os
import sys
from collections.abc import Mapping

import msgspec

from forewarn.agent.handlers.configured import Configured
from forewarn.agent.handlers.environment import inherited
from forewarn.agent.handlers.port import Again, Done, Ended, Errand, Failed
from forewarn.agent.handlers.programs import run
from forewarn.agent.handlers.saying import facts, filled
from forewarn.agent.handlers.secret_files import Hide, UnusableSecret, problems_of, read_secrets, unhidden
from forewarn.agent.handlers.telling import NOT_KNOWN, NOT_THERE, NOT_TOLD, Message
from forewarn.agent.settings import NotifySettings
from forewarn.clock import Clock

PROGRAM = (sys.executable, "-P", "-m", "forewarn.agent.handlers.telling")
MISSING = "notify needs Apprise: pip install 'forewarn[notify]'"


class NotifyHandler(Configured[NotifySettings]):
    """Sends a message to every URL of a file."""

    def __init__(
        self,
        settings: NotifySettings,
        *,
        hide: Hide = unhidden,
        environ: Mapping[str, str] = os.environ,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(settings, clock)
        self._hide = hide
        self._environ = inherited(environ)

    async def tell(self, errand: Errand) -> Ended:
        """Send the message, if it is wanted in this phase."""
        return await self._tried_again(self._tell_once, errand) if errand.phase in self.settings.phases else Done()

    async def _tell_once(self, errand: Errand) -> Ended:
        said = facts(errand, self._clock.now())
        return await self._run(title=filled(self.settings.title, said), body=filled(self.settings.body, said))

    async def check(self) -> list[str]:
        """Look whether Apprise is there and knows every URL. Nobody is told anything."""
        path = self.settings.urls_file
        if problems := [] if path is None else problems_of(path):
            return problems
        ended = await self._run(body=None)
        return [] if isinstance(ended, Done) else [ended.why]

    async def _run(self, *, title: str = "", body: str | None) -> Ended:
        """Have the message sent. What goes wrong with a URL is told by its number: what stands in it is secret."""
        path = self.settings.urls_file
        try:
            urls = [] if path is None else read_secrets(path, self._hide)
            ran = await run(PROGRAM, self._environ, msgspec.json.encode(Message(urls=urls, title=title, body=body)))
        except UnusableSecret as error:
            return Failed(str(error))
        except OSError as error:
            return Again(f"{sys.executable} cannot be started: {error.strerror}")
        match ran.code:
            case 0:
                return Done()
            case code if code == NOT_THERE:
                return Failed(MISSING)
            case code if code == NOT_KNOWN:
                return Failed(f"{path}: Apprise does not know what URL {ran.printed.strip()} is for")
            case code if code == NOT_TOLD:
                return Again(f"not everybody in {path} could be told")
            case code:
                return Failed(f"telling people ended with {code}")
