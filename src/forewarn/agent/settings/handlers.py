"""Schema of the settings of each kind of handler."""

from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import msgspec

from forewarn.agent.phases import Phase
from forewarn.agent.settings.types import (
    HeaderName,
    Importance,
    Method,
    Phases,
    Prefix,
    RecoverMode,
    Recovery,
    Servers,
    SocketAddress,
    TemplateOrNone,
    TemplateText,
    Tries,
    Units,
    UpToDay,
    UrlOrNone,
    WebPath,
)
from forewarn.settings.types import DurationWithinDay, Flag, Listen, ListenAddress, PathOrNone, Program

NOTIFY_PHASES = (Phase.NOTICE, Phase.RECOVER)


class HandlerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that every kind of handler has."""

    kind: ClassVar[str]
    is_notify_only: ClassVar[bool] = False
    """Whether this kind only reports events. Such handlers are chosen for events that match no rule."""

    name: str
    importance: Importance = 50
    time_limit: DurationWithinDay = timedelta(seconds=30)
    retries: Tries = 2
    pause: UpToDay = timedelta(seconds=1)
    ready_despite_failure: Flag = False


class ExecSettings(HandlerSettings, frozen=True, kw_only=True):
    """Programs of the user: one for prepare and one for recover, or a directory of hooks for each phase."""

    kind = "exec"

    prepare: Program = ()
    recover: Program = ()
    hooks: PathOrNone = None
    recovery: Recovery = RecoverMode.AT_LEAST_ONCE


class SystemdSettings(HandlerSettings, frozen=True, kw_only=True):
    """systemd units to stop before the event and start after it."""

    kind = "systemd"

    units: Units = ()


class WebhookSettings(HandlerSettings, frozen=True, kw_only=True):
    """An HTTP request."""

    kind = "http"

    url: UrlOrNone = None
    url_file: PathOrNone = None
    method: Method = "POST"
    phases: Phases = (Phase.PREPARE, Phase.RECOVER)
    content_type: Prefix = "application/json"
    body: TemplateOrNone = None
    secret_file: PathOrNone = None
    header: HeaderName = "Authorization"
    prefix: Prefix = "Bearer "
    ca: PathOrNone = None


class HaproxySettings(HandlerSettings, frozen=True, kw_only=True):
    """HAProxy servers to drain before the event and set ready after it."""

    kind = "haproxy"

    socket: SocketAddress = Path("/run/haproxy/admin.sock")
    servers: Servers = ()
    wait: UpToDay = timedelta(seconds=20)


class ReadinessSettings(HandlerSettings, frozen=True, kw_only=True):
    """Where load balancers probe the readiness of this VM."""

    kind = "readiness"

    listen: Listen = ListenAddress("127.0.0.1", 8161)
    path: WebPath = "/serving"
    wait: UpToDay = timedelta(seconds=15)


class NotifySettings(HandlerSettings, frozen=True, kw_only=True):
    """Messages to people, sent with Apprise."""

    kind = "notify"
    is_notify_only = True

    urls_file: PathOrNone = None
    phases: Phases = NOTIFY_PHASES
    title: TemplateText = "$type of $name: $phase"
    body: TemplateText = "$description\nEvent $id by $source, not before $not_before, takes $duration s.\n$resources"


class LogHandlerSettings(HandlerSettings, frozen=True, kw_only=True):
    """One log line for each phase."""

    kind = "log"
    is_notify_only = True


KINDS: dict[str, type[HandlerSettings]] = {
    section.kind: section
    for section in (
        ExecSettings,
        SystemdSettings,
        WebhookSettings,
        HaproxySettings,
        ReadinessSettings,
        NotifySettings,
        LogHandlerSettings,
    )
}
