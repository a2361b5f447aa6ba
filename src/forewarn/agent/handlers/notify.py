"""Notify handler: sends messages with Apprise (mail, chat, SMS). Needs the extra `[notify]`."""

import os
import sys
from collections.abc import Mapping

import msgspec

from forewarn.agent.handlers.apprise_main import APPRISE_MISSING, INVALID_URL, SEND_FAILED, Message
from forewarn.agent.handlers.base import CallResult, Done, Failed, HandlerBase, HandlerContext, Retry
from forewarn.agent.handlers.env import inherited_variables
from forewarn.agent.handlers.programs import HandlerPrograms
from forewarn.agent.handlers.secret_files import Hide, InvalidSecret, check_secret_file, hide_nothing, read_secrets
from forewarn.agent.handlers.templates import fill_template, template_facts
from forewarn.agent.settings import NotifySettings
from forewarn.clock import Clock

PROGRAM = (sys.executable, "-P", "-m", "forewarn.agent.handlers.apprise_main")
MISSING = "notify needs Apprise: install Forewarn with its extra [notify]"


class NotifyHandler(HandlerBase[NotifySettings]):
    """Sends a message to every Apprise URL of a file."""

    def __init__(
        self,
        settings: NotifySettings,
        programs: HandlerPrograms,
        *,
        hide: Hide = hide_nothing,
        environ: Mapping[str, str] = os.environ,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(settings, clock)
        self._programs = programs
        self._hide = hide
        self._environ = inherited_variables(environ)

    async def notify(self, context: HandlerContext) -> CallResult:
        """Send the message, if the settings name this phase."""
        return await self._retry(self._notify_once, context) if context.phase in self.settings.phases else Done()

    async def _notify_once(self, context: HandlerContext) -> CallResult:
        values = template_facts(context, self._clock.now())
        title, body = fill_template(self.settings.title, values), fill_template(self.settings.body, values)
        return await self._send(context, title=title, body=body)

    async def check(self) -> list[str]:
        """Check that Apprise is installed and supports every URL. Sends nothing."""
        path = self.settings.urls_file
        if problems := [] if path is None else check_secret_file(path):
            return problems
        result = await self._send(None, body=None)
        return [] if isinstance(result, Done) else [result.reason]

    async def _send(self, context: HandlerContext | None, *, title: str = "", body: str | None) -> CallResult:
        """Send the message in a subprocess. Errors name a URL by its number, because the URL itself is secret."""
        path = self.settings.urls_file
        try:
            urls = [] if path is None else read_secrets(path, self._hide)
            message = msgspec.json.encode(Message(urls=urls, title=title, body=body))
            ran = await self._programs.run(PROGRAM, self._environ, context, message)
        except InvalidSecret as error:
            return Failed(str(error))
        except OSError as error:
            return Retry(f"cannot start {sys.executable}: {error.strerror}")
        match ran.code:
            case 0:
                return Done()
            case code if code == APPRISE_MISSING:
                return Failed(MISSING)
            case code if code == INVALID_URL:
                return Failed(f"{path}: Apprise does not support URL number {ran.stdout.strip()}")
            case code if code == SEND_FAILED:
                return Retry(f"could not send to every URL of {path}")
            case code:
                return Failed(f"sending failed with exit code {code}")
