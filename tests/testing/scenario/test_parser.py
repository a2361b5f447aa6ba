"""Tests of the scenario language: parsing, error messages, and writing a scenario with new facts."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core.campaign.spec import CampaignPolicy
from forewarn.core.event import EventType
from forewarn.core.fault import FaultKind
from forewarn.core.journal import EntryKind
from forewarn.core.policy import AnnouncePolicy
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.core.vm import Priority
from forewarn.testing.scenario import CoreBackend, ScenarioError, commands, parse, render_script, run_script
from forewarn.testing.scenario.grammar import COMMAND_SYNTAX
from forewarn.testing.scenario.lexer import TIME, Lexeme, time_text
from forewarn.testing.scenario.render import VERBS

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
GUID = "01234567-89AB-CDEF-0123-456789ABCDEF"

SPELT: dict[str, commands.BaseCommand] = {
    "policy production announce always notice any speed 60 idle never operations 3": commands.SetPolicy(
        preset=commands.Preset.PRODUCTION,
        announce=AnnouncePolicy.ALWAYS,
        notice=commands.NoticeRule.ANY,
        speed=60.0,
        idle=None,
        operations=3,
    ),
    "policy idle 2d": commands.SetPolicy(idle=48 * HOUR),
    "platform automatic lasting 5s": commands.UsePlatform(
        way=commands.PlatformMode.AUTOMATIC, lasting=timedelta(seconds=5)
    ),
    "fleet demonstration": commands.UseFleet(fleet=commands.FleetName.DEMONSTRATION),
    "handler web/web_0": commands.Handler(vm="web/web_0"),
    "scope web availability-set approval all auto-approve Reboot Redeploy priority low": commands.AddScope(
        scope="web",
        kind=ScopeKind.AVAILABILITY_SET,
        approval=ApprovalRule.ALL,
        auto_approve=(EventType.REBOOT, EventType.REDEPLOY),
        priority=Priority.LOW,
    ),
    "change scope web auto-approve terminate-notice 6m": commands.ChangeScope(
        scope="web", auto_approve=(), terminate_notice=6 * MINUTE
    ),
    'remove scope web force by alice why "no more"': commands.RemoveScope(
        scope="web", force=True, by="alice", why="no more"
    ),
    "vm web_0 web_1 of web domain 2 host hv-1": commands.AddVms(
        names=("web_0", "web_1"), scope="web", domain=2, host="hv-1"
    ),
    "change vm web/web_0 host unknown domain 1 by alice": commands.ChangeVm(
        vm="web/web_0", host=None, domain=1, by="alice"
    ),
    "move web_0 to hv-2": commands.ChangeVm(vm="web_0", host="hv-2"),
    "remove vm web_0": commands.RemoveVm(vm="web_0"),
    "clear E1": commands.Clear(event="E1"),
    "tick": commands.Tick(),
    "tick -1d 10:15:30.25": commands.Tick(time=timedelta(days=-1, hours=10, minutes=15, seconds=30.25)),
    "wait 1h30m": commands.Wait(time=1.5 * HOUR),
    "expect E1 Started (due) within 15m": commands.Expect(
        subject="E1", happening=("Started", "(due)"), within=15 * MINUTE
    ),
    "expect E1 on web_0 done within 90s": commands.Expect(
        subject="E1", happening=("on", "web_0", "done"), within=1.5 * MINUTE
    ),
    "expect nothing within 5m": commands.Expect(subject="nothing", happening=(), within=5 * MINUTE),
    "outage 90s": commands.Outage(time=1.5 * MINUTE),
    "query web_0": commands.Query(vm="web_0"),
    f'approve E1 {GUID} "no id" by web_0 through alice': commands.Approve(
        events=("E1", GUID, "no id"), vm="web_0", through="alice"
    ),
    "approve by web_0": commands.Approve(events=(), vm="web_0"),
    "schedule Freeze web_0 web_1 in 20m lasting 5s by user why drill request r key k": commands.Schedule(
        type=EventType.FREEZE,
        vms=("web_0", "web_1"),
        notice=20 * MINUTE,
        duration=timedelta(seconds=5),
        by="user",
        why="drill",
        request="r",
        key="k",
    ),
    "schedule Freeze web_0 campaign kernel": commands.Schedule(
        type=EventType.FREEZE, vms=("web_0",), campaign="kernel"
    ),
    "schedule Reboot web_0 not_before +1d 10:00": commands.Schedule(
        type=EventType.REBOOT, vms=("web_0",), not_before=34 * HOUR
    ),
    "restart web_0 request r": commands.Restart(vm="web_0", request="r"),
    "redeploy web_0": commands.Redeploy(vm="web_0"),
    "delete web_0": commands.Delete(vm="web_0"),
    "evict web_0 in 8s": commands.Evict(vm="web_0", notice=timedelta(seconds=8)),
    "fail web_0 web_1 with Reboot": commands.Fail(vms=("web_0", "web_1"), type=EventType.REBOOT),
    "predict web_0 in 3d": commands.Predict(vms=("web_0",), ahead=72 * HOUR),
    "cancel E2 why done": commands.Cancel(event="E2", why="done"),
    'hold all "moving house" by alice': commands.Hold(what="all", reason="moving house", by="alice"),
    "release web why done": commands.Release(what="web", why="done"),
    "begin E1 again": commands.Begin(event="E1", again=True),
    "done E1 web_0 on hv-2": commands.Done(event="E1", vms=("web_0",), host="hv-2"),
    "failed E1 web_0 why broken": commands.Failed(event="E1", vms=("web_0",), why="broken"),
    "later E1 in 5m": commands.Later(event="E1", after=5 * MINUTE),
    "unknown E1 why crash": commands.Unknown(event="E1", why="crash"),
    "campaign kernel Reboot web db gap 5m notice 20m expected 2m scopes_at_once 10% windows 22:00-04:00 gate": (
        commands.StartCampaign(
            campaign="kernel",
            type=EventType.REBOOT,
            scopes=("web", "db"),
            policy={
                "gap": timedelta(minutes=5),
                "notice": timedelta(minutes=20),
                "expected": timedelta(minutes=2),
                "scopes_at_once": "10%",
            },
            windows=((timedelta(hours=22), timedelta(hours=4)),),
            gate=True,
        )
    ),
    "campaign kernel Reboot web must_end_inside gate_patience 1h halt_after 2 vms_at_once 3": commands.StartCampaign(
        campaign="kernel",
        type=EventType.REBOOT,
        scopes=("web",),
        policy={
            "must_end_inside": True,
            "gate_patience": timedelta(hours=1),
            "halt_after": 2,
            "vms_at_once": "3",
        },
    ),
    "pause campaign kernel": commands.PauseCampaign(campaign="kernel"),
    "resume campaign kernel by alice": commands.ResumeCampaign(campaign="kernel", by="alice"),
    'abort campaign kernel why "no"': commands.AbortCampaign(campaign="kernel", why="no"),
    "retry wave kernel web": commands.RetryWave(campaign="kernel", scope="web"),
    "skip wave kernel web why never": commands.SkipWave(campaign="kernel", scope="web", why="never"),
    "gate closed": commands.SetGate(state=commands.GateState.CLOSED),
    "retry E1 web_0 by alice": commands.Retry(event="E1", vms=("web_0",), by="alice"),
    "resolve E1 done by alice why seen": commands.Resolve(event="E1", done=True, by="alice", why="seen"),
    "resolve E1 on web_0 why seen": commands.Resolve(event="E1", vm="web_0", why="seen"),
    "fault 410 web_0 times 3": commands.SetFault(kind=FaultKind.STATUS_410, vm="web_0", times=3),
    "fault slow for 30s of 2s": commands.SetFault(
        kind=FaultKind.SLOW, lasting=timedelta(seconds=30), amount=timedelta(seconds=2)
    ),
    "clear faults": commands.ClearFaults(),
    "explain E1": commands.Explain(event="E1"),
    "document web_0": commands.Document(vm="web_0"),
    "state web": commands.State(scope="web"),
    "wake web": commands.Wake(scope="web"),
}

# Text, line, column, word, and the beginning of the message.
ERRORS: dict[str, tuple[str, int, int, str, str]] = {
    "unknown command": (
        "\nfoo web_0",
        2,
        1,
        "foo",
        "unknown command; a line begins with policy, platform, fleet, handler, scope",
    ),
    "misspelt command": ("shedule Reboot x", 1, 1, "shedule", "unknown command: did you mean `schedule`?"),
    "type as a command": ("reboot x", 1, 1, "reboot", "unknown command: did you mean `schedule Reboot`?"),
    "misspelt option with a number": ("vm web_0 domian 0", 1, 10, "domian", "did you mean `domain`? If it is a name"),
    "misspelt option with a duration": ("schedule Reboot web_0 inn 15m", 1, 23, "inn", "did you mean `in`?"),
    "misspelt option with a name": ("vm web_0 hots hv-1", 1, 10, "hots", "did you mean `host`?"),
    "misspelt option without a value": ("begin E1 agian", 1, 10, "agian", "did you mean `again`?"),
    "misspelt option in place of a name": ("fault 410 fro 5m", 1, 11, "fro", "did you mean `for`?"),
    "misspelt option after all words": (
        "cancel E1 yb alice",
        1,
        11,
        "yb",
        "only an option is allowed here: by, why or at",
    ),
    "half a command": ("remove", 1, 8, "", "remove what? scope or vm"),
    "wrong second word": ("change host h", 1, 8, "host", "change what? scope or vm"),
    "unknown event type": (
        "schedule Rebot web_0",
        1,
        10,
        "Rebot",
        "an event type is expected here: Freeze, Reboot, Redeploy, Preempt, Terminate or SpotRebalanceRecommendation",
    ),
    "missing VM": ("schedule Reboot", 1, 17, "", "a VM is missing: its name, or scope/name"),
    "option in place of a VM": (
        "schedule Reboot in 5m",
        1,
        17,
        "in",
        "a VM is missing: its name, or scope/name",
    ),
    "invalid duration": (
        "schedule Reboot web_0 in soon",
        1,
        26,
        "soon",
        "a duration is expected here: for instance 90s, 15m, 1h30m or 2d",
    ),
    "invalid number": ("vm x domain first", 1, 13, "first", "a whole number is expected here: for instance 0 or 60"),
    "invalid time": (
        "tick 25:00",
        1,
        6,
        "25:00",
        "a time of day is expected here: for instance 10:15 or 10:15:30, on a later day +1d 10:15",
    ),
    "not an event": (
        "cancel web_0",
        1,
        8,
        "web_0",
        "an event is expected here: E1, E2, … in order of appearance, an id, or a quoted text",
    ),
    "repeated option": ("cancel E1 by a by b", 1, 16, "by", "option given more than once"),
    "additional word": ("query web_0 web_1", 1, 13, "web_1", "only an option is allowed here: at"),
    "missing required option": ("approve E1", 1, 12, "", "approve needs `by` and a VM: its name, or scope/name"),
    "unknown verb of an event": (
        "expect E1 started within 5m",
        1,
        11,
        "started",
        "the verb of a fact is expected here: Scheduled, announced, approved, Started, left with, Completed, Canceled,",
    ),
    "event without a verb": (
        "expect E1 within 5m",
        1,
        11,
        "within",
        "the verb of a fact is expected here: Scheduled",
    ),
    "unknown verb of work": (
        "expect E1 on web_0 finished within 5m",
        1,
        20,
        "finished",
        "the verb of a fact is expected here: begun, done, put off, failed, unknown, to be tried again or given up",
    ),
    "unknown verb of a scope": (
        "expect web Started within 5m",
        1,
        12,
        "Started",
        "the verb of a fact is expected here: created, changed, removed, added, moved, enabled, disabled, held, ",
    ),
    "window without an end": (
        "campaign kernel Reboot web windows 22:00",
        1,
        36,
        "22:00",
        "a window is expected here: from one time of day to another",
    ),
    "invalid limit": (
        "campaign kernel Reboot web vms_at_once many",
        1,
        40,
        "many",
        "a limit is expected here: a number such as 10",
    ),
    "unknown verb of a wave": (
        "expect kernel wave 1 of web Started within 5m",
        1,
        29,
        "Started",
        "the verb of a fact is expected here: announced, unannounced, differs from the plan, cleared, settled",
    ),
    "word after nothing": ("expect nothing E1 within 5m", 1, 16, "E1", "nothing must be followed by within"),
    "other word instead of within": ("expect E1 Started in 5m", 1, 19, "in", "expect needs `within` and a duration"),
    "duration without within": ("expect E1 Started 5m", 1, 19, "5m", "expect needs `within` and a duration"),
    "missing within": ("expect E1 Started", 1, 19, "", "expect needs `within` and a duration"),
    "missing fact": ("expect within 5m", 1, 8, "within", "a fact is missing: for instance E1 Started"),
    "unknown fault": ("fault 418", 1, 7, "418", "a fault is expected here: status-410, status-429, status-500,"),
    "missing quotation mark": ('hold web "moving house', 1, 10, '"moving house', "the quotation mark is not closed"),
    "unknown choice": (
        "scope web set",
        1,
        11,
        "set",
        "a kind is expected here: standalone, cloud-service, availability-set or placement-group",
    ),
    "quoted option is not an option": ('query web_0 "at" 10:00', 1, 13, "at", "only an option is allowed here: at"),
    "arrow without a command": ("  → nothing", 1, 3, "", "an arrow needs a command before it"),
    "arrow after an empty line": ("tick → nothing\n\n→ nothing", 3, 1, "", "an arrow needs a command before it"),
    "unknown label": ("scope web standalone\ncancel E7", 2, 8, "E7", "no event has this label yet"),
    "unknown scope": ("state web", 1, 7, "web", "unknown scope"),
    "VM before any scope": ("vm web_0", 1, 1, "vm", "no scope defined yet: start with `scope NAME KIND`"),
    "ambiguous VM": (
        "scope a standalone\nvm x\nscope b standalone\nvm x\nquery x",
        5,
        7,
        "x",
        "several scopes have a VM of this name; write scope/name",
    ),
    "refused without an arrow": (
        "scope a standalone\nrestart x",
        2,
        9,
        "x",
        "scope a has no VM x (vm-not-found); a line without an arrow must not be refused",
    ),
    "refused because of the VM's priority": (
        "scope a standalone\nvm x\nevict x",
        3,
        7,
        "x",
        "x has regular priority: only low-priority VMs can be preempted (vm-not-evictable); a line without an arrow",
    ),
    "time in the past": (
        "platform automatic\nwait 5m\ntick 10:04",
        3,
        1,
        "tick",
        "the clock is already at 10:05 and cannot go back with `platform automatic`",
    ),
}


def tell(text: str) -> str:
    """Run a scenario on the core, and return its text with the resulting facts."""
    script = parse(text)
    return render_script(script, {played.step.line: played.facts for played in run_script(script, CoreBackend())})


def test_keys_of_a_campaign_policy_are_options() -> None:
    keys = set(CampaignPolicy.__struct_fields__) - set(COMMAND_SYNTAX["campaign"].options)
    assert keys == {"waves", "blackouts", "zone", "advance"}, "scenarios have no options for these"


@pytest.mark.parametrize(("line", "command"), SPELT.items(), ids=list(SPELT))
def test_line_is_parsed(line: str, command: commands.BaseCommand) -> None:
    assert [step.command for step in parse(line).steps] == [command]


def test_every_command_has_a_parsed_line() -> None:
    assert {type(command) for command in SPELT.values()} == {form.command for form in COMMAND_SYNTAX.values()}


def test_every_journal_entry_kind_has_a_verb() -> None:
    assert set(VERBS) == set(EntryKind)


@pytest.mark.parametrize("case", ERRORS)
def test_error_has_position_word_and_allowed_values(case: str) -> None:
    text, line, column, word, problem = ERRORS[case]
    with pytest.raises(ScenarioError) as caught:
        tell(text)
    error = caught.value
    assert (error.line, error.column, error.word) == (line, column, word)
    assert error.problem.startswith(problem)


@pytest.mark.parametrize("names", ["host1 host2", "a b c", "one-in two-in", '"domian" 0'])
def test_names_unlike_options_are_names(names: str) -> None:
    (step,) = parse(f"vm {names}").steps
    assert step.command == commands.AddVms(names=tuple(names.replace('"', "").split()))


def test_error_message_has_position_and_word() -> None:
    with pytest.raises(ScenarioError, match=r"^line 1, column 8, at 'web_0': an event is expected here: E1, E2, …"):
        parse("cancel web_0")


def test_scenario_that_is_too_long_is_refused() -> None:
    with pytest.raises(ScenarioError, match="line 10001, column 1: a scenario has at most 10000 lines"):
        parse("tick\n" * 10_001)


@pytest.mark.parametrize(("text", "line"), [("", 1), ("# Nothing\n\n# follows.\n", 3)])
def test_scenario_without_a_command_is_refused(text: str, line: int) -> None:
    """An empty file, run by mistake, must not pass."""
    with pytest.raises(ScenarioError, match="a scenario needs at least one command") as caught:
        parse(text)
    assert caught.value.line == line


def test_byte_order_mark_is_ignored() -> None:
    assert parse("\ufeff# A fact.\ntick") == parse("# A fact.\ntick")


def test_every_command_accepts_a_time() -> None:
    (step,) = parse("query web_0 at +1d  10:30").steps
    assert (step.at, step.command) == (34.5 * HOUR, commands.Query(vm="web_0"))


def test_facts_are_separated_by_semicolons_or_lines() -> None:
    one, other = parse("tick → a; b ;c\ntick -> a\n   → b\n -> c").steps
    assert one.expected == other.expected == ("a", "b", "c")


def test_arrow_in_quotation_marks_is_text() -> None:
    (step,) = parse('hold web "a → b; c" → nothing').steps
    assert (step.command, step.expected) == (commands.Hold(what="web", reason="a → b; c"), ("nothing",))


def test_header_comment_is_the_title() -> None:
    assert parse("# An event\n# starts.\n\n# Not this.\ntick").title == "An event starts."


def test_writing_a_scenario_changes_only_the_facts_after_arrows() -> None:
    text = (
        "# A comment; → stays.\n"
        "scope web   availability-set\n"
        "vm web_0 web_1 domain 0\n"
        "\n"
        "schedule Reboot web_0   at 10:00 -> wrong\n"
        "   → and wrong again\n"
        "tick 10:14 →\n"
        "\n"
        "tick 10:15  →\n"
    )
    told = (
        "# A comment; → stays.\n"
        "scope web   availability-set\n"
        "vm web_0 web_1 domain 0\n"
        "\n"
        "schedule Reboot web_0   at 10:00  →  E1 Scheduled not_before 10:15, incarnation 2\n"
        "tick 10:14                        →  nothing\n"
        "\n"
        "tick 10:15  →  E1 Started (due), incarnation 3; impact E1 web_0\n"
    )
    assert tell(text) == told
    assert tell(told) == told


def test_long_facts_are_written_on_separate_lines() -> None:
    text = (
        "scope web availability-set\nvm web_0 domain 0\nvm web_1 domain 1\n\nschedule Reboot web_0 web_1 at 10:00 →\n"
    )
    told = tell(text)
    assert told.splitlines()[4:] == [
        "schedule Reboot web_0 web_1 at 10:00  →  E1 Scheduled web_0 not_before 10:15, incarnation 2",
        "                                      →  E2 Scheduled web_1 not_before 10:15, incarnation 3",
    ]
    assert tell(told) == told


def test_run_reports_the_step_with_unexpected_facts() -> None:
    script = parse("scope web availability-set\nvm web_0\nrestart web_0 → E1 Started\ntick → nothing\n")
    assert [played.step.line for played in run_script(script, CoreBackend()) if not played.is_as_expected] == [3]


def test_fact_with_a_semicolon_can_be_expected() -> None:
    text = 'scope web availability-set\nvm web_0\nhold web "wait; then go" → web held (wait; then go)\n'
    assert all(played.is_as_expected for played in run_script(parse(text), CoreBackend()))


@given(st.timedeltas(min_value=timedelta(days=-9999), max_value=timedelta(days=9999)))
def test_written_times_can_be_read(time: timedelta) -> None:
    text = time_text(time)
    assert TIME.read(Lexeme(text, 1, 1 + len(text))) == time
    step: Any = parse(f"tick {text}").steps[0]
    assert step.command == commands.Tick(time=time)
