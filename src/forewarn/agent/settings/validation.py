"""Validation across settings: combinations that are not allowed."""

from collections.abc import Iterator

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
from forewarn.settings import SettingsConflict
from forewarn.settings.file_reader import FileValue
from forewarn.settings.loader import place


def validate(settings: AgentSettings, document: FileValue) -> None:
    """Refuse what does not go together; `document` is the file, for the message."""
    problem = next(find_problems(settings), None)
    if problem is not None:
        key, *_ = problem.split(" ")
        raise SettingsConflict(f"{place(document.at(key))}: {problem}")


def find_problems(settings: AgentSettings) -> Iterator[str]:
    """Give what is wrong, beginning with the key."""
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
            yield "prepare is missing: say prepare, recover or both, each a program; or hooks, a directory of programs"
        case ExecSettings() if handler.hooks is not None and (handler.prepare or handler.recover):
            yield "hooks is a directory for all phases: it excludes prepare and recover; make two handlers"
        case SystemdSettings(units=()):
            yield 'units is missing: it takes a list of units with their suffix, such as ["nginx.service"]'
        case HaproxySettings(servers=()):
            yield 'servers is missing: it takes a list of BACKEND/SERVER, such as ["web/web_0"]'
        case WebhookSettings(url=None, url_file=None):
            yield "url is missing: say url, or url_file if the URL itself is secret"
        case WebhookSettings() if handler.url is not None and handler.url_file is not None:
            yield "url and url_file exclude each other"
        case NotifySettings(urls_file=None):
            yield "urls_file is missing: it takes a file with one Apprise URL in each line"
        case _:
            pass


def _wait_problems(handler: HandlerSettings) -> Iterator[str]:
    if isinstance(handler, HaproxySettings | ReadinessSettings) and handler.wait >= handler.time_limit:
        yield "wait is not shorter than time_limit: it would always be cut off, and count as failed"


def _rule_problems(rule: Rule, names: tuple[str, ...]) -> Iterator[str]:
    for name in rule.handlers:
        if name not in names:
            yield f"handlers names {name}, which is none of {', '.join(names)}"
    if rule.at_least is not None and rule.at_most is not None and rule.at_least > rule.at_most:
        yield "at_least is longer than at_most: no event is both"


def _peer_problems(settings: AgentSettings) -> Iterator[str]:
    peers = settings.peers
    if peers.agents and peers.secret_file is None:
        yield "peers.secret_file is missing: agents tell each other nothing without a shared secret"
    if peers.secret_file is not None and settings.http.listen is None:
        yield 'http.listen is "none": peers could not ask this agent'


def _listener_problems(settings: AgentSettings) -> Iterator[str]:
    """Two that listen at one place would be a surprise at the start. Port 0 is any free one."""
    taken = {} if settings.http.listen is None else {settings.http.listen: "http.listen"}
    for probe in settings.handlers:
        if not isinstance(probe, ReadinessSettings) or probe.listen.port == 0:
            continue
        key = f"handlers.{probe.name}.listen"
        if probe.listen in taken:
            yield f"{key} is where {taken[probe.listen]} is already: give it another port"
        taken[probe.listen] = key
