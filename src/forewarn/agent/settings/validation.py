"""Validation across settings: combinations that are not allowed."""

from collections.abc import Iterator, Mapping

from forewarn.agent.settings.handlers import (
    ExecSettings,
    HandlerSettings,
    HaproxySettings,
    NotifySettings,
    ReadinessSettings,
    SystemdSettings,
    WebhookSettings,
)
from forewarn.agent.settings.schema import AgentSettings, Rule
from forewarn.agent.settings.types import RecoverMode
from forewarn.settings.errors import SettingsConflict
from forewarn.settings.file_reader import FileValue
from forewarn.settings.loader import place


def validate(settings: AgentSettings, places: Mapping[str, str], document: FileValue) -> None:
    """Raise SettingsConflict for a combination that is not allowed.

    `places` has the place of each value outside of handlers and rules; `document` locates those in the file.
    """
    problem = next(find_problems(settings), None)
    if problem is not None:
        key, *_ = problem.split(" ")
        raise SettingsConflict(f"{places.get(key) or place(document.at(key))}: {problem}")


def find_problems(settings: AgentSettings) -> Iterator[str]:
    """Yield the problems; each message starts with a key that was set, or with a missing key of a handler."""
    for handler in settings.handlers:
        for problem in (*_handler_problems(handler), *_wait_problems(handler)):
            yield f"handlers.{handler.name}.{problem}"
    names = tuple(handler.name for handler in settings.handlers)
    for number, rule in enumerate(settings.rules):
        for problem in _rule_problems(rule, names):
            yield f"rules[{number}].{problem}"
    yield from _peer_problems(settings)
    yield from _listener_problems(settings)


def _handler_problems(handler: HandlerSettings) -> Iterator[str]:
    match handler:
        case ExecSettings(prepare=(), recover=(), hooks=None):
            yield "prepare is missing: set prepare or recover (a program each), or both, or hooks (a directory)"
        case ExecSettings() if handler.hooks is not None and (handler.prepare or handler.recover):
            yield "hooks cannot be combined with prepare or recover; configure two handlers instead"
        case ExecSettings(recover=(), recovery=RecoverMode.AT_MOST_ONCE):
            yield "recovery is at-most-once, which needs recover, a program: hooks run again from the first one"
        case SystemdSettings(units=()):
            yield 'units is missing: expected a list of units with their suffix, such as ["nginx.service"]'
        case HaproxySettings(servers=()):
            yield 'servers is missing: expected a list of BACKEND/SERVER, such as ["web/web_0"]'
        case WebhookSettings(url=None, url_file=None):
            yield "url is missing: set url, or url_file if the URL itself is secret"
        case WebhookSettings() if handler.url is not None and handler.url_file is not None:
            yield "url and url_file are mutually exclusive"
        case NotifySettings(urls_file=None):
            yield "urls_file is missing: expected a file with one Apprise URL per line"
        case _:
            pass


def _wait_problems(handler: HandlerSettings) -> Iterator[str]:
    if isinstance(handler, HaproxySettings | ReadinessSettings) and handler.wait >= handler.time_limit:
        yield "wait must be shorter than time_limit; otherwise every call is cancelled and counts as failed"


def _rule_problems(rule: Rule, names: tuple[str, ...]) -> Iterator[str]:
    for name in rule.handlers:
        if name not in names:
            yield f"handlers contains unknown handler {name}; configured: {', '.join(names)}"
    if rule.at_least is not None and rule.at_most is not None and rule.at_least > rule.at_most:
        yield "at_least is longer than at_most; no event can match"


def _peer_problems(settings: AgentSettings) -> Iterator[str]:
    peers = settings.peers
    if peers.agents and peers.secret_file is None:
        yield "peers.agents needs peers.secret_file: agents answer each other only with a shared secret"
    if peers.secret_file is not None and settings.http.listen is None:
        yield 'http.listen is "none", but peers need it to reach this agent'


def _listener_problems(settings: AgentSettings) -> Iterator[str]:
    """Yield listeners with the same address. Port 0 means any free port, so it never conflicts."""
    taken = {} if settings.http.listen is None else {settings.http.listen: "http.listen"}
    for probe in settings.handlers:
        if not isinstance(probe, ReadinessSettings) or probe.listen.port == 0:
            continue
        key = f"handlers.{probe.name}.listen"
        if probe.listen in taken:
            yield f"{key} has the same address as {taken[probe.listen]}; choose another port"
        taken[probe.listen] = key
