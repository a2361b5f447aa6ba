"""Connection to the NATS servers: logs in, calls the JetStream API, and sends nothing while it is disconnected.

NatsError
├── ServerUnavailable  no server could act on the request; it has had no effect
├── ResponseMissing    the request has no answer; it may or may not have had its effect
└── ApiRefused         JetStream has refused the request
"""

import asyncio
import json
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import (
    ConnectionClosedError,
    Error,
    MaxPayloadError,
    NoRespondersError,
    OutboundBufferLimitError,
    SlowConsumerError,
    StaleConnectionError,
)

from forewarn.core.base_error import BaseError
from forewarn.files import read_file
from forewarn.settings.nats import NatsSettings
from forewarn.store.port import StoreError, StoreUnavailable

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
"""How long to wait for the first connection."""

ANSWER_SECONDS = 3.0
"""How long to wait for the answer to a request."""

FLUSH_SECONDS = 5
PING_SECONDS = 5
"""After three pings without an answer the connection is given up."""

PERMISSIONS_VIOLATION = "permissions violation"
MAX_VIOLATIONS = 100
"""How many violations that the server has reported are remembered."""

CANCEL_SECONDS = 0.1
"""How long to wait for a cancelled task before it is cancelled again."""


class NatsError(BaseError):
    """A request to the NATS servers has failed."""


class ServerUnavailable(NatsError):
    """A request reached no server that could act on it, and has had no effect."""

    template = "{reason}"
    reason: str


class ResponseMissing(NatsError):
    """A request was sent, but has no answer: it may or may not have had its effect."""

    template = "{reason}"
    reason: str


class ApiRefused(NatsError):
    """JetStream has refused a request; `code` is its number of the reason."""

    template = "{description} ({code})"
    code: int
    description: str


class InvalidCredentials(StoreError):
    """The files with which to log in cannot be used."""

    template = "cannot log in to NATS with {path} ({reason}): check the section [nats] of the settings"
    path: Path
    reason: str


class NatsConnection:
    """One connection to any of the servers; it connects again by itself. Create it with `open`."""

    def __init__(self, settings: NatsSettings, inbox: str = "_INBOX") -> None:
        self.servers = settings.servers
        self.api_prefix = settings.api_prefix
        self._inbox = inbox
        self._client = Client()
        self._slow: dict[Subscription, Callable[[], None]] = {}
        self._last_error = "no server answers"
        self._violations: deque[str] = deque(maxlen=MAX_VIOLATIONS)

    @classmethod
    async def open(
        cls, settings: NatsSettings, *, patience: float | None = None, inbox: str = "_INBOX"
    ) -> "NatsConnection":
        """Connect to one of the servers; raise StoreUnavailable if none accepts the connection in time.

        `inbox` is the beginning of the subjects on which the connection receives answers.
        """
        connection = cls(settings, inbox)
        options = await asyncio.to_thread(_login_options, settings)
        try:
            async with asyncio.timeout(CONNECT_SECONDS if patience is None else patience):
                await connection._connect(options)
        except (TimeoutError, Error, OSError, ValueError) as error:
            await connection.aclose()
            reason = connection._last_error if isinstance(error, TimeoutError) else str(error) or repr(error)
            raise StoreUnavailable(", ".join(settings.servers), reason) from error
        return connection

    @property
    def is_connected(self) -> bool:
        """Whether a request can be sent now."""
        return self._client.is_connected

    @property
    def version(self) -> tuple[int, int, int]:
        """The version of the server that it is connected to."""
        version = self._client.connected_server_version
        return version.major, version.minor, version.patch

    def new_inbox(self) -> str:
        """Return a subject that only this connection uses."""
        return self._client.new_inbox()

    async def publish(
        self, subject: str, data: bytes, headers: Mapping[str, str] | None = None, *, reply: str = ""
    ) -> None:
        """Send a message without waiting for an answer.

        Raises ServerUnavailable without a connection: nothing is kept for later.
        """
        if not self._client.is_connected:
            raise ServerUnavailable(self._last_error)
        try:
            await self._client.publish(subject, data, reply, dict(headers) if headers else None)
        except (OutboundBufferLimitError, ConnectionClosedError, StaleConnectionError) as error:
            raise ServerUnavailable(str(error)) from error

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Msg:
        """Send a message and return its answer; raise ServerUnavailable or ResponseMissing."""
        if not self._client.is_connected:
            raise ServerUnavailable(self._last_error)
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        try:
            return await self._client.request(
                subject, data, timeout=ANSWER_SECONDS, headers=dict(headers) if headers else None
            )
        except (NoRespondersError, OutboundBufferLimitError) as error:
            raise ServerUnavailable(f"no process receives {subject}") from error
        except MaxPayloadError:  # it was not sent
            raise
        except (TimeoutError, Error) as error:
            raise ResponseMissing(
                f"no answer within {ANSWER_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)
            ) from error
        finally:
            # Python 3.11 loses a cancellation that comes together with the answer: then the task would never end.
            if task is not None and task.cancelling() > cancelled_before:
                raise asyncio.CancelledError

    async def call(self, function: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Call a function of the JetStream API and return its result.

        Raises ApiRefused, ServerUnavailable or ResponseMissing.
        """
        answer = await self.request(f"{self.api_prefix}.{function}", json.dumps(body or {}).encode())
        return parse_answer(answer.data)

    async def subscribe(
        self, subject: str, callback: Callable[[Msg], Any], on_slow: Callable[[], None], *, group: str = ""
    ) -> Subscription:
        """Receive messages; `on_slow` is called when some were dropped, because the callback is too slow.

        Of the subscriptions with the same `group`, only one gets each message.
        """
        subscription = await self._client.subscribe(subject, group, cb=callback)
        self._slow[subscription] = on_slow
        return subscription

    async def flush(self) -> bool:
        """Wait until the server has received everything that was sent; return False if the connection is lost."""
        try:
            for _ in range(2):  # the client sends the first ping before messages that wait in its buffer
                await self._client.flush(FLUSH_SECONDS)
        except (Error, TimeoutError):
            return False
        return True

    async def may_send(self, subject: str, data: bytes, headers: Mapping[str, str] | None = None) -> bool:
        """Send a message and return whether the user may send it; raise ServerUnavailable if the server is silent."""
        await self.publish(subject, data, headers, reply=self.new_inbox())
        return not await self._is_violation(subject)

    async def may_receive(self, subject: str) -> bool:
        """Return whether the user may receive messages of a subject; raise ServerUnavailable as `may_send` does."""

        async def ignore(_: Msg) -> None:
            return

        subscription = await self.subscribe(subject, ignore, lambda: None)
        try:
            return not await self._is_violation(subject)
        finally:
            await self.unsubscribe(subscription)

    async def _is_violation(self, subject: str) -> bool:
        """Return whether the server has refused what was just sent for the subject.

        It reports a violation before it answers a later ping, so its silence proves nothing.
        """
        if not await self.flush():
            raise ServerUnavailable("the server does not answer")
        text = f'"{subject.lower()}"'  # the client converts errors of the server to lower case
        return any(text in violation for violation in self._violations)

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Receive no more messages."""
        self._slow.pop(subscription, None)
        try:
            await subscription.unsubscribe()
        except Error:  # the connection is closed, and with it the subscription
            return

    async def aclose(self) -> None:
        """Close the connection. A second call does nothing."""
        with suppress(OSError, RuntimeError):  # without a server, the client writes to a socket that is closed
            await self._client.close()
        await asyncio.sleep(0)  # the event loop closes the socket in its next iteration

    async def _connect(self, options: dict[str, Any]) -> None:
        await self._client.connect(
            list(self.servers),
            name="forewarn",
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            max_reconnect_attempts=-1,
            ping_interval=PING_SECONDS,
            inbox_prefix=self._inbox,
            pending_size=0,  # without a connection a message is refused, not kept and sent later
            **options,
        )

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, SlowConsumerError):
            if (on_slow := self._slow.get(error.sub)) is not None:
                on_slow()
            return
        self._last_error = str(error) or type(error).__name__
        if PERMISSIONS_VIOLATION in self._last_error.lower():
            self._violations.append(self._last_error.lower())
        log.debug("NATS: %s", self._last_error)

    async def _on_disconnected(self) -> None:
        if not self._client.is_closed:
            log.warning("lost the connection to NATS; changes wait until a server answers")

    async def _on_reconnected(self) -> None:
        url = self._client.connected_url
        log.warning("connected to NATS again at %s", url.netloc if url else "an unknown address")


async def cancel_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """End tasks. Python 3.11 loses a cancellation that comes together with the answer to a request, so repeat it."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_SECONDS)


def parse_answer(data: bytes) -> dict[str, Any]:
    """Return the result that an answer of JetStream contains; raise ApiRefused for an error."""
    answer: dict[str, Any] = json.loads(data)
    if (error := answer.get("error")) is not None:  # an error has a `seq` too, so look at nothing else
        raise ApiRefused(int(error.get("err_code", error.get("code", 0))), str(error.get("description", "")))
    return answer


def _login_options(settings: NatsSettings) -> dict[str, Any]:
    """Return the arguments with which the client logs in; they apply to discovered servers too."""
    options: dict[str, Any] = {"reconnect_time_wait": 0.25, "connect_timeout": 2}
    if settings.user is not None:
        options["user"] = settings.user
    if settings.password_file is not None:
        options["password"] = _read_secret(settings.password_file)
    if settings.token_file is not None:
        options["token"] = _read_secret(settings.token_file)
    if settings.nkey_file is not None:
        options["nkeys_seed_str"] = _read_secret(settings.nkey_file)
    if settings.credentials_file is not None:
        _read_secret(settings.credentials_file)  # the client's own error does not name the file
        options["user_credentials"] = str(settings.credentials_file)
    needs_tls = settings.ca_file or settings.certificate or any(url.startswith("tls:") for url in settings.servers)
    if needs_tls:
        options["tls"] = _create_tls_context(settings)
    return options


def _read_secret(path: Path) -> str:
    try:
        secret = read_file(path).decode().strip()
    except OSError as error:
        raise InvalidCredentials(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InvalidCredentials(path, "it is not a text file") from error
    if not secret:
        raise InvalidCredentials(path, "it is empty")
    return secret


def _create_tls_context(settings: NatsSettings) -> ssl.SSLContext:
    path = settings.ca_file
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if settings.certificate is not None:
            path = settings.certificate
            context.load_cert_chain(settings.certificate, settings.key)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise InvalidCredentials(path or Path(), getattr(error, "strerror", None) or str(error)) from error
    return context
