"""Grammar of the scenario language: a table of the syntax of each command, and the parser of one line.

A line is `verb words… [option value]…`. An option of the verb ends a list of words before it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import islice
from typing import NamedTuple, cast

import msgspec
from msgspec import inspect

from forewarn.api.table_reader import field_type, struct_fields
from forewarn.core.campaign.spec import CampaignPolicy, Limit
from forewarn.core.errors import CoreError
from forewarn.core.event import EventType
from forewarn.core.event_type import MAINTENANCE_TYPES, USER_TYPES
from forewarn.core.policy import AnnouncePolicy
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.core.text import join_choices
from forewarn.core.vm import Priority
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.expect import FACT_WORD, check_expectation
from forewarn.testing.scenario.lexer import (
    AMOUNT,
    DURATION,
    DURATION_OR_NEVER,
    EVENT,
    EVENT_TYPE,
    FAULT,
    HOST,
    LIMIT,
    NAME,
    NUMBER,
    TEXT,
    TIME,
    VM,
    WHOLE_NUMBER,
    WINDOW,
    Lexeme,
    LexemeType,
    ScenarioError,
    closest_match,
    one_of,
)


class Slot(NamedTuple):
    """A place for one word or a list of words, and the command's field for it."""

    field: str
    kind: LexemeType
    at_least: int = 1
    many: bool = False


class Flag(NamedTuple):
    """An option without a value."""

    field: str


class CommandSyntax(msgspec.Struct, frozen=True):
    """The syntax of one command: the words after the verb, then optional and required options in any order.

    `check` returns the first word that does not fit the words before it, and a message with what is allowed there.
    """

    command: type[commands.BaseCommand]
    words: tuple[Slot, ...] = ()
    options: dict[str, Slot | Flag] = {}
    required: dict[str, Slot] = {}
    check: Callable[[Sequence[Lexeme]], tuple[Lexeme | None, str] | None] | None = None


def _optional(field: str, kind: LexemeType) -> Slot:
    return Slot(field, kind, at_least=0)


def _many(field: str, kind: LexemeType, at_least: int = 1) -> Slot:
    return Slot(field, kind, at_least=at_least, many=True)


POLICY = "policy."
"""Prefix of a field name: the value is a key of the command's `policy`."""


def _policy_options() -> dict[str, Slot | Flag]:
    """Return an option for each key of a campaign's policy that a scenario can set."""
    options: dict[str, Slot | Flag] = {}
    for key, field in struct_fields(CampaignPolicy).items():
        match field_type(field.type).type:
            case inspect.TimeDeltaType():
                options[key] = Slot(POLICY + key, DURATION)
            case inspect.IntType():
                options[key] = Slot(POLICY + key, WHOLE_NUMBER)
            case inspect.BoolType() if not field.default:
                options[key] = Flag(POLICY + key)
            case inspect.StructType(cls=cls) if cls is Limit:
                options[key] = Slot(POLICY + key, LIMIT)
            case _ if key == "windows":
                options[key] = _many(key, WINDOW)
            case _ if key == "gate":
                options[key] = Flag(key)
    return options


_AUTO_APPROVED = one_of("an event type", USER_TYPES)
_PRIORITY = one_of("a priority", Priority)
_APPROVAL = one_of("an approval rule", ApprovalRule)

_BY: dict[str, Slot | Flag] = {"by": Slot("by", NAME)}
_WHY: dict[str, Slot | Flag] = {"why": Slot("why", TEXT)}
_REQUEST: dict[str, Slot | Flag] = {"request": Slot("request", NAME)}
_UNANNOUNCED: dict[str, Slot | Flag] = {"unannounced": Flag("unannounced")}
_NOW: dict[str, Slot | Flag] = {"now": Flag("now"), **_UNANNOUNCED}
_TRAITS: dict[str, Slot | Flag] = {
    "priority": Slot("priority", _PRIORITY),
    "terminate-notice": Slot("terminate_notice", DURATION),
}
_SCOPE_OPTIONS: dict[str, Slot | Flag] = {
    "approval": Slot("approval", _APPROVAL),
    "auto-approve": _many("auto_approve", _AUTO_APPROVED, at_least=0),
    **_TRAITS,
}
_CAMPAIGN_TYPE = one_of("an event type", MAINTENANCE_TYPES)
_CAMPAIGN = (Slot("campaign", NAME),)
_WAVE = (Slot("campaign", NAME), Slot("scope", NAME))
_REASON: dict[str, Slot] = {"why": Slot("why", TEXT)}
_IMPACTS = (Slot("event", EVENT), _many("vms", VM, at_least=0))

COMMAND_SYNTAX: dict[str, CommandSyntax] = {
    "policy": CommandSyntax(
        commands.SetPolicy,
        (_optional("preset", one_of("a preset", commands.Preset)),),
        {
            "announce": Slot("announce", one_of("a rule for announcing", AnnouncePolicy)),
            "notice": Slot("notice", one_of("a rule for notices", commands.NoticeRule)),
            "speed": Slot("speed", NUMBER),
            "idle": Slot("idle", DURATION_OR_NEVER),
            "operations": Slot("operations", WHOLE_NUMBER),
        },
    ),
    "platform": CommandSyntax(
        commands.UsePlatform,
        (Slot("way", one_of("a way", commands.PlatformMode)),),
        {"lasting": Slot("lasting", DURATION)},
    ),
    "fleet": CommandSyntax(commands.UseFleet, (Slot("fleet", one_of("a fleet", commands.FleetName)),)),
    "handler": CommandSyntax(commands.Handler, (Slot("vm", VM),)),
    "scope": CommandSyntax(
        commands.AddScope, (Slot("scope", NAME), Slot("kind", one_of("a kind", ScopeKind))), _SCOPE_OPTIONS
    ),
    "change scope": CommandSyntax(commands.ChangeScope, (Slot("scope", NAME),), _SCOPE_OPTIONS),
    "remove scope": CommandSyntax(
        commands.RemoveScope, (Slot("scope", NAME),), {"force": Flag("force"), **_BY, **_WHY}
    ),
    "vm": CommandSyntax(
        commands.AddVms,
        (_many("names", NAME),),
        {"of": Slot("scope", NAME), "domain": Slot("domain", WHOLE_NUMBER), "host": Slot("host", HOST), **_TRAITS},
    ),
    "change vm": CommandSyntax(
        commands.ChangeVm,
        (Slot("vm", VM),),
        {"domain": Slot("domain", WHOLE_NUMBER), "host": Slot("host", HOST), **_TRAITS, **_BY},
    ),
    "move": CommandSyntax(commands.ChangeVm, (Slot("vm", VM),), _BY, required={"to": Slot("host", HOST)}),
    "remove vm": CommandSyntax(commands.RemoveVm, (Slot("vm", VM),), {"force": Flag("force"), **_BY, **_WHY}),
    "tick": CommandSyntax(commands.Tick, (_optional("time", TIME),)),
    "wait": CommandSyntax(commands.Wait, (Slot("time", DURATION),)),
    "expect": CommandSyntax(
        commands.Expect,
        (Slot("subject", FACT_WORD), _many("happening", FACT_WORD, at_least=0)),
        required={"within": Slot("within", DURATION)},
        check=check_expectation,
    ),
    "outage": CommandSyntax(commands.Outage, (Slot("time", DURATION),)),
    "query": CommandSyntax(commands.Query, (Slot("vm", VM),)),
    "approve": CommandSyntax(
        commands.Approve,
        (_many("events", EVENT, at_least=0),),
        {"through": Slot("through", NAME)},
        required={"by": Slot("vm", VM)},
    ),
    "schedule": CommandSyntax(
        commands.Schedule,
        (Slot("type", EVENT_TYPE), _many("vms", VM)),
        {
            "in": Slot("notice", DURATION),
            "not_before": Slot("not_before", TIME),
            "lasting": Slot("duration", DURATION),
            "key": Slot("key", TEXT),
            "campaign": Slot("campaign", NAME),
            **_NOW,
            **_BY,
            **_WHY,
            **_REQUEST,
        },
    ),
    "restart": CommandSyntax(commands.Restart, (Slot("vm", VM),), {**_NOW, **_REQUEST}),
    "redeploy": CommandSyntax(commands.Redeploy, (Slot("vm", VM),), {**_NOW, **_REQUEST}),
    "delete": CommandSyntax(commands.Delete, (Slot("vm", VM),), {**_NOW, **_REQUEST}),
    "evict": CommandSyntax(commands.Evict, (Slot("vm", VM),), {"in": Slot("notice", DURATION), **_NOW, **_REQUEST}),
    "fail": CommandSyntax(commands.Fail, (_many("vms", VM),), {"with": Slot("type", EVENT_TYPE), **_REQUEST}),
    "predict": CommandSyntax(
        commands.Predict,
        (_many("vms", VM),),
        {**_UNANNOUNCED, **_REQUEST},
        required={"in": Slot("ahead", DURATION)},
    ),
    "cancel": CommandSyntax(commands.Cancel, (Slot("event", EVENT),), {**_BY, **_WHY}),
    "clear": CommandSyntax(commands.Clear, (Slot("event", EVENT),)),
    "hold": CommandSyntax(commands.Hold, (Slot("what", NAME), Slot("reason", TEXT)), _BY),
    "release": CommandSyntax(commands.Release, (Slot("what", NAME),), {**_BY, **_WHY}),
    "campaign": CommandSyntax(
        commands.StartCampaign,
        (Slot("campaign", NAME), Slot("type", _CAMPAIGN_TYPE), _many("scopes", NAME)),
        {
            **_policy_options(),
            "lasting": Slot("duration", DURATION),
            **_UNANNOUNCED,
            **_BY,
            **_WHY,
        },
    ),
    "pause campaign": CommandSyntax(commands.PauseCampaign, _CAMPAIGN, {**_BY, **_WHY}),
    "resume campaign": CommandSyntax(commands.ResumeCampaign, _CAMPAIGN, {**_BY, **_WHY}),
    "abort campaign": CommandSyntax(commands.AbortCampaign, _CAMPAIGN, _BY, required=_REASON),
    "retry wave": CommandSyntax(commands.RetryWave, _WAVE, {**_BY, **_WHY}),
    "skip wave": CommandSyntax(commands.SkipWave, _WAVE, _BY, required=_REASON),
    "gate": CommandSyntax(commands.SetGate, (Slot("state", one_of("a state", commands.GateState)),)),
    "begin": CommandSyntax(commands.Begin, _IMPACTS, {"again": Flag("again")}),
    "done": CommandSyntax(commands.Done, _IMPACTS, {"on": Slot("host", HOST)}),
    "failed": CommandSyntax(commands.Failed, _IMPACTS, _WHY),
    "later": CommandSyntax(commands.Later, _IMPACTS, _WHY, required={"in": Slot("after", DURATION)}),
    "unknown": CommandSyntax(commands.Unknown, _IMPACTS, _WHY),
    "retry": CommandSyntax(commands.Retry, _IMPACTS, {**_BY, **_WHY}),
    "resolve": CommandSyntax(
        commands.Resolve, (Slot("event", EVENT),), {"on": Slot("vm", NAME), "done": Flag("done"), **_BY, **_WHY}
    ),
    "fault": CommandSyntax(
        commands.SetFault,
        (Slot("kind", FAULT), _optional("vm", VM)),
        {"for": Slot("lasting", DURATION), "times": Slot("times", WHOLE_NUMBER), "of": Slot("amount", AMOUNT)},
    ),
    "clear faults": CommandSyntax(commands.ClearFaults),
    "explain": CommandSyntax(commands.Explain, (Slot("event", EVENT),)),
    "document": CommandSyntax(commands.Document, (Slot("vm", VM),)),
    "state": CommandSyntax(commands.State, (Slot("scope", NAME),)),
    "wake": CommandSyntax(commands.Wake, (Slot("scope", NAME),)),
}

NAME_TYPES = (NAME, VM)
"""Types that accept nearly any word."""

MIN_SIMILARITY, HIGH_SIMILARITY = 0.65, 0.75
"""How similar a name must be to an option to count as misspelt, as `fro` is to `for`; the second, if any word may
follow the option.
"""

_OPTION_PATTERN = re.compile(r"[a-z_-]{2,}", re.IGNORECASE)

PREPOSITIONS = frozenset({"in", "within", "after", "for", "by"})
"""Words that people write before a duration."""

OPTIONS = frozenset(option for form in COMMAND_SYNTAX.values() for option in (*form.options, *form.required, "at"))
"""Every word that is an option of some command."""

AT_SLOT = Slot("at", TIME)
"""Every command has the option `at`: `… at 10:00` first sets the clock to that time."""


def parse_command(words: Sequence[Lexeme], line: int) -> tuple[commands.Command, timedelta | None]:
    """Parse a command and its time (`at`)."""
    missing = Lexeme("", words[-1].end + 1, words[-1].end + 1)
    verb, rest = _split_verb(words, line, missing)
    return _CommandParser(verb, rest, line, missing).parse()


def _split_verb(words: Sequence[Lexeme], line: int, missing: Lexeme) -> tuple[str, Sequence[Lexeme]]:
    first, second = words[0], words[1] if len(words) > 1 else missing
    seconds = [verb.partition(" ")[2] for verb in COMMAND_SYNTAX if verb.startswith(f"{first.text} ")]
    if second.text in seconds and not second.quoted:
        return f"{first.text} {second.text}", words[2:]
    if first.text in COMMAND_SYNTAX and not first.quoted:
        return first.text, words[1:]
    if not seconds:
        raise ScenarioError(_unknown_verb_message(first.text), line=line, column=first.column, word=first.text)
    raise ScenarioError(
        f"{first.text} what? {join_choices(seconds)}", line=line, column=second.column, word=second.text
    )


def _unknown_verb_message(text: str) -> str:
    """Return a message with the most similar command, or with all commands if none is similar."""
    type_ = next((type_ for type_ in EventType if type_.casefold() == text.casefold()), None)
    if type_ is not None:
        return f"unknown command: did you mean `schedule {type_.value}`?"
    verbs = list(dict.fromkeys(verb.partition(" ")[0] for verb in COMMAND_SYNTAX))
    suggestion = closest_match(text, verbs)
    if suggestion is not None:
        return f"unknown command: did you mean `{suggestion}`?"
    return f"unknown command; a line begins with {join_choices(verbs)}"


class _CommandParser:
    """Parser of one line, from left to right."""

    def __init__(self, verb: str, words: Sequence[Lexeme], line: int, missing: Lexeme) -> None:
        self.verb = verb
        self.syntax = COMMAND_SYNTAX[verb]
        self.options: dict[str, Slot | Flag] = {**self.syntax.required, **self.syntax.options, "at": AT_SLOT}
        self.words = words
        self.remaining = list(words)
        self.line, self.missing = line, missing
        self.fields: dict[str, object] = {}

    def parse(self) -> tuple[commands.Command, timedelta | None]:
        for slot in self.syntax.words:
            self._check_options(slot)
            self._parse_slot(slot)
        while self.remaining:
            self._parse_option()
        for option, slot in self.syntax.required.items():
            if slot.field not in self.fields:
                needed = f"{self.verb} needs `{option}` and {slot.kind.label}: {slot.kind.allowed}"
                raise self._error(needed, self._misplaced_word(slot))
        if self.syntax.check is not None and (wrong := self.syntax.check(self.words)) is not None:
            raise self._error(wrong[1], wrong[0])
        at = cast("timedelta | None", self.fields.pop("at", None))
        fields = {name: value for name, value in self.fields.items() if not name.startswith(POLICY)}
        if len(fields) < len(self.fields):
            given = {name.removeprefix(POLICY): value for name, value in self.fields.items() if name not in fields}
            fields["policy"] = given
        return cast("commands.Command", self.syntax.command(**fields)), at

    def _parse_option(self) -> None:
        word = self.remaining.pop(0)
        if not self._is_option(word):
            problem = f"only an option is allowed here: {join_choices(self.options)}"
            raise self._error(problem + _hint(word, self.options), word)
        option = self.options[word.text]
        if option.field in self.fields:
            raise self._error("option given more than once", word)
        if isinstance(option, Flag):
            self.fields[option.field] = True
        else:
            self._parse_slot(option)

    def _parse_slot(self, slot: Slot) -> None:
        values: list[object] = []
        while self.remaining and not self._is_option(self.remaining[0]) and (slot.many or not values):
            values.append(self._parse_value(slot))
        if len(values) < slot.at_least:
            raise self._error(
                f"{slot.kind.label} is missing: {slot.kind.allowed}", self.remaining[0] if self.remaining else None
            )
        if slot.many:
            self.fields[slot.field] = tuple(values)
        elif values:
            self.fields[slot.field] = values[0]

    def _check_options(self, slot: Slot) -> None:
        """Refuse names that look like misspelt options and are followed by what that option needs.

        In quotation marks such a name is allowed. No option contains a digit, so `host1` is a name.
        """
        if slot.kind not in NAME_TYPES:
            return
        followed_by = zip(self.remaining, [*self.remaining[1:], None], strict=False)
        for word, following in followed_by if slot.many else islice(followed_by, 1):
            if self._is_option(word):
                return
            meant = self._similar_option(word, following)
            if meant is not None:
                problem = f'did you mean `{meant}`? If it is a name, put it in quotation marks: "{word.text}"'
                raise self._error(problem, word)

    def _similar_option(self, word: Lexeme, following: Lexeme | None) -> str | None:
        """Return the option that a name is similar to, if that option is allowed here."""
        if word.quoted or not _OPTION_PATTERN.fullmatch(word.text):
            return None
        possible = [option for option, slot in self.options.items() if _may_follow(slot, following)]
        specific = [option for option in possible if not _takes_any_word(self.options[option])]
        return closest_match(word.text, specific, min_similarity=MIN_SIMILARITY) or closest_match(
            word.text, possible, min_similarity=HIGH_SIMILARITY
        )

    def _misplaced_word(self, slot: Slot) -> Lexeme | None:
        """Return the word in place of a missing option: the one before the duration at the end."""
        if slot.kind is not DURATION or not self.words or not DURATION.accepts(self.words[-1]):
            return None
        before = self.words[-2:-1]
        return before[0] if before and before[0].text in PREPOSITIONS else self.words[-1]

    def _parse_value(self, slot: Slot) -> object:
        word = self.remaining.pop(0)
        try:
            return slot.kind.read(word)
        except CoreError:
            problem = f"{slot.kind.label} is expected here: {slot.kind.allowed}"
            raise self._error(problem + _hint(word, slot.kind.choices), word) from None

    def _is_option(self, word: Lexeme) -> bool:
        return word.text in self.options and not word.quoted

    def _error(self, problem: str, word: Lexeme | None = None) -> ScenarioError:
        at = word or self.missing
        return ScenarioError(problem, line=self.line, column=at.column, word=at.text)


def _hint(word: Lexeme, known: Iterable[str]) -> str:
    """Return a question with the allowed word that is most similar to the given one, if any."""
    suggestion = closest_match(word.text, known)
    return "" if suggestion is None or suggestion == word.text else f"; did you mean {suggestion}?"


def _takes_any_word(option: Slot | Flag) -> bool:
    return isinstance(option, Slot) and option.kind in (*NAME_TYPES, HOST, TEXT)


def _may_follow(option: Slot | Flag, word: Lexeme | None) -> bool:
    if isinstance(option, Flag):
        return word is None
    return word is not None and option.kind.accepts(word)
