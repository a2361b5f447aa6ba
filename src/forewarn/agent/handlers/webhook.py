"""Webhook handler: sends an HTTP request when a phase begins, or as a prepare or recover call that must succeed."""

import asyncio
import ssl
from urllib.parse import urlsplit

import msgspec

from forewarn import __version__
from forewarn.agent.handlers.base import CallResult, Done, Failed, HandlerBase, HandlerContext, Phase, Retry
from forewarn.agent.handlers.secret_files import Hide, InvalidSecret, check_secret_file, hide_nothing, read_secret
from forewarn.agent.handlers.templates import escape_for, fill_template, template_facts
from forewarn.agent.settings import WebhookSettings
from forewarn.clock import Clock
from forewarn.http_client import PORTS, HttpRequest, InvalidCertificate, RequestFailed, send_request

RETRYABLE_STATUSES = frozenset({408, 425, 429})
"""Client error statuses that are retried; all statuses from 500 on are retried too."""

WITHOUT_BODY = frozenset({"GET", "DELETE"})


class WebhookHandler(HandlerBase[WebhookSettings]):
    """Sends an HTTP request, with a secret header if configured."""

    def __init__(self, settings: WebhookSettings, *, hide: Hide = hide_nothing, clock: Clock | None = None) -> None:
        super().__init__(settings, clock)
        self._hide = hide

    async def prepare(self, context: HandlerContext) -> CallResult:
        """Send the request, if the settings name this phase."""
        return await self._send_if(Phase.PREPARE, context)

    async def recover(self, context: HandlerContext) -> CallResult:
        """Send the request, if the settings name this phase."""
        return await self._send_if(Phase.RECOVER, context)

    async def notify(self, context: HandlerContext) -> CallResult:
        """Send the request, if the settings name this phase and it has no handler call."""
        is_call = context.phase in (Phase.PREPARE, Phase.RECOVER)
        is_wanted = context.phase in self.settings.phases and not is_call
        return await self._retry(self._send, context) if is_wanted else Done()

    async def check(self) -> list[str]:
        """Check the files, and that the server's name resolves. Sends nothing."""
        files = (self.settings.secret_file, self.settings.url_file)
        problems = [problem for path in files if path is not None for problem in check_secret_file(path)]
        try:
            url = self._url()
            self._tls()
        except (InvalidSecret, OSError) as error:
            return problems or [str(error)]
        return problems + await _check_dns(url)

    async def _send_if(self, phase: Phase, context: HandlerContext) -> CallResult:
        return await self._send(context) if phase in self.settings.phases else Done()

    async def _send(self, context: HandlerContext) -> CallResult:
        try:
            request, tls = self._request(context), self._tls()
        except (InvalidSecret, OSError) as error:
            return Failed(str(error))
        try:
            response = await send_request(request, tls=tls)
        except InvalidCertificate as error:
            return Failed(str(error))
        except RequestFailed as error:
            return Retry(str(error))
        return _call_result(request.origin, response.status)

    def _request(self, context: HandlerContext) -> HttpRequest:
        settings, values = self.settings, template_facts(context, self._clock.now())
        headers = {"User-Agent": f"forewarn-agent/{__version__}"}
        body = b""
        if settings.body is not None:
            body = fill_template(settings.body, values, escape_for(settings.content_type)).encode()
        elif settings.method not in WITHOUT_BODY:
            body = msgspec.json.encode(values)
        if body:
            headers["Content-Type"] = settings.content_type
        url = self._url()
        if settings.secret_file is not None:
            headers[settings.header] = settings.prefix + read_secret(settings.secret_file, self._hide)
        return HttpRequest(settings.method, url, headers, body)

    def _url(self) -> str:
        if self.settings.url is not None:
            return self.settings.url
        path = self.settings.url_file
        url = "" if path is None else read_secret(path, self._hide)
        if urlsplit(url).scheme not in PORTS or not urlsplit(url).hostname:
            raise InvalidSecret(f"{path} does not contain an http or https URL")
        return url

    def _tls(self) -> ssl.SSLContext | None:
        if urlsplit(self._url()).scheme != "https":
            return None
        return ssl.create_default_context(cafile=self.settings.ca)


def _call_result(origin: str, status: int) -> CallResult:
    if 200 <= status < 300:
        return Done()
    if 300 <= status < 400:
        return Failed(f"{origin} answered {status}: redirects are not followed; configure the target URL")
    reason = f"{origin} answered {status}"
    return Retry(reason) if status in RETRYABLE_STATUSES or status >= 500 else Failed(reason)


async def _check_dns(url: str) -> list[str]:
    parts = urlsplit(url)
    try:
        await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port or PORTS[parts.scheme])
    except (OSError, UnicodeError) as error:
        return [f"cannot resolve {parts.hostname}: {error}"]
    return []
