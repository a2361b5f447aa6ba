"""A request to some web service when a phase begins, or as a half that has to succeed."""

import asyncio
import ssl
from base64 import b64encode
from urllib.parse import unquote, urlsplit

import msgspec

from forewarn import __version__
from forewarn.agent.handlers.configured import Configured
from forewarn.agent.handlers.port import Again, Done, Ended, Errand, Failed, Phase
from forewarn.agent.handlers.saying import facts, filled, written_for
from forewarn.agent.handlers.secret_files import Hide, UnusableSecret, problems_of, read_secret, unhidden
from forewarn.agent.handlers.sending import PORTS, NotHttp, Request, send
from forewarn.agent.settings import WebhookSettings
from forewarn.clock import Clock

PASSING = frozenset({408, 425, 429})
"""Refusals that another try may get around; all from 500 on may."""

WITHOUT_BODY = frozenset({"GET", "DELETE"})


class WebhookHandler(Configured[WebhookSettings]):
    """Sends a request, with a secret if there is one."""

    def __init__(self, settings: WebhookSettings, *, hide: Hide = unhidden, clock: Clock | None = None) -> None:
        super().__init__(settings, clock)
        self._hide = hide

    async def prepare(self, errand: Errand) -> Ended:
        """Send the request, if it is wanted in this phase."""
        return await self._send_if(Phase.PREPARE, errand)

    async def recover(self, errand: Errand) -> Ended:
        """Send the request, if it is wanted in this phase."""
        return await self._send_if(Phase.RECOVER, errand)

    async def tell(self, errand: Errand) -> Ended:
        """Send the request, if it is wanted in a phase that has no half."""
        is_half = errand.phase in (Phase.PREPARE, Phase.RECOVER)
        is_wanted = errand.phase in self.settings.phases and not is_half
        return await self._tried_again(self._send, errand) if is_wanted else Done()

    async def check(self) -> list[str]:
        """Look at the files, and whether the server's name is known. Nothing is sent."""
        files = (self.settings.secret_file, self.settings.url_file)
        problems = [problem for path in files if path is not None for problem in problems_of(path)]
        try:
            url = self._url()
            self._tls()
        except (UnusableSecret, OSError) as error:
            return problems or [str(error)]
        return problems + await _unknown_server(url)

    async def _send_if(self, phase: Phase, errand: Errand) -> Ended:
        return await self._send(errand) if phase in self.settings.phases else Done()

    async def _send(self, errand: Errand) -> Ended:
        try:
            request, tls = self._request(errand), self._tls()
        except (UnusableSecret, OSError) as error:
            return Failed(str(error))
        try:
            status = await send(request, tls)
        except ssl.SSLCertVerificationError as error:
            return Failed(f"{request.place} is not trusted: {error.verify_message}")
        except (OSError, EOFError, NotHttp, UnicodeError) as error:
            return Again(f"{request.place} does not answer: {error}")
        return _ended(request.place, status)

    def _request(self, errand: Errand) -> Request:
        settings, said = self.settings, facts(errand, self._clock.now())
        headers = {"User-Agent": f"forewarn-agent/{__version__}"}
        body = b""
        if settings.body is not None:
            body = filled(settings.body, said, written_for(settings.content_type)).encode()
        elif settings.method not in WITHOUT_BODY:
            body = msgspec.json.encode(said)
        if body:
            headers["Content-Type"] = settings.content_type
        url = self._url()
        headers |= _basic(url)
        if settings.secret_file is not None:
            headers[settings.header] = settings.prefix + read_secret(settings.secret_file, self._hide)
        return Request(settings.method, url, headers, body)

    def _url(self) -> str:
        if self.settings.url is not None:
            return self.settings.url
        path = self.settings.url_file
        url = "" if path is None else read_secret(path, self._hide)
        if urlsplit(url).scheme not in PORTS or not urlsplit(url).hostname:
            raise UnusableSecret(f"{path} has no http or https URL")
        return url

    def _tls(self) -> ssl.SSLContext | None:
        if urlsplit(self._url()).scheme != "https":
            return None
        return ssl.create_default_context(cafile=self.settings.ca)


def _basic(url: str) -> dict[str, str]:
    """Return the header for a user and password that stand in the URL, as browsers send it."""
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(said.encode()).decode()}"}


def _ended(place: str, status: int) -> Ended:
    if 200 <= status < 300:
        return Done()
    if 300 <= status < 400:
        return Failed(f"{place} answers {status}: redirects are not followed, so name the place to which it leads")
    why = f"{place} answers {status}"
    return Again(why) if status in PASSING or status >= 500 else Failed(why)


async def _unknown_server(url: str) -> list[str]:
    parts = urlsplit(url)
    try:
        await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port or PORTS[parts.scheme])
    except (OSError, UnicodeError) as error:
        return [f"{parts.hostname} is not known: {error}"]
    return []
