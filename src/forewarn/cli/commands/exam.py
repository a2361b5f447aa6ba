"""`forewarn exam`: run a handler in every scenario and report which checks it passes."""

import shlex
import shutil
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forewarn.cli.colours import Colour
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.extras import require_server
from forewarn.cli.files import atomic_write
from forewarn.cli.options.common import (
    FILE_PATH,
    FROM_1,
    FROM_1_TO_100,
    ONE_SHOT_SECONDS,
    complete_words,
    option,
    output_option,
    usage_errors,
)
from forewarn.cli.options.ports import REACH_HELP, read_ports
from forewarn.cli.options.upload import find_upload_target, upload_option, upload_report
from forewarn.cli.output import Output, write, write_json, write_message
from forewarn.cli.views.exam_progress import ExamProgress
from forewarn.cli.views.tables import Column, write_table

if TYPE_CHECKING:
    from types import ModuleType

    from click.shell_completion import CompletionItem

    from forewarn.testing.exam import Cause, ExamOptions, ExamScenario, Expectations, Report, Result

PASSED, FAILED, NOT_FINISHED = "passed", "failed", "not finished"
KEPT, WARNING, BROKEN, NOT_JUDGED = "kept", "warning", "broken", "not judged"

RESULTS = (
    Column("SCENARIO"),
    Column(
        "RESULT",
        colours={
            PASSED: Colour.GOOD,
            FAILED: Colour.BAD,
            NOT_FINISHED: Colour.WARNING,
            NOT_JUDGED: Colour.DIM,
        },
    ),
    Column("KEPT"),
    Column("WARNINGS"),
    Column("BROKEN"),
    Column("NOT JUDGED"),
    Column("TOOK", drop_order=1),
)
FINDINGS = (
    Column("SCENARIO"),
    Column("DEMAND"),
    Column("FINDING", colours={KEPT: Colour.GOOD, WARNING: Colour.WARNING, BROKEN: Colour.BAD, NOT_JUDGED: Colour.DIM}),
    Column("EXPECTED AND OBSERVED", can_fold=True),
)
CHECKS = (Column("CHECK"), Column("THE HANDLER", can_fold=True), Column("IN", can_fold=True))
SCENARIOS = (
    Column("SCENARIO"),
    Column("WHAT HAPPENS", can_fold=True),
    Column("EVENTS"),
    Column("DIFFERENCES FROM MOST", can_fold=True),
)

LAST_LINES = 5
"""How many lines of a failed program's output are shown; JSON and JUnit have more."""

LONGEST_LINE = 200

MAX_REASONS = 3
"""How many reasons for "not judged" are shown; --all shows each."""

MAX_NAMES = 6
"""How many scenarios of one cause are named; --all shows each."""

TIME_FACTOR = 3
"""The suggested --patience for unfinished scenarios, as a multiple of the current one."""


def _complete_scenarios(_: click.Context, __: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    with require_server():
        from forewarn.testing.exam import exam_scenarios
    names = [scenario.name for scenario in exam_scenarios()]
    return complete_words(names, incomplete)


# Without interspersed arguments, options after the program's name belong to the program, with or without `--`.
@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", metavar="[COMMAND]...", nargs=-1)
@click.option("--vm", metavar="VM", default="web-0", show_default=True, help="Run the handler as the VM of this name.")
@click.option(
    "--only",
    metavar="SCENARIO",
    multiple=True,
    help="Run only this scenario; repeatable.",
    shell_complete=_complete_scenarios,
)
@click.option(
    "--skip",
    metavar="SCENARIO",
    multiple=True,
    help="Skip this scenario; repeatable.",
    shell_complete=_complete_scenarios,
)
@click.option(
    "--scenario",
    "own",
    type=FILE_PATH,
    metavar="FILE",
    multiple=True,
    help="Run this scenario of your own instead of the shipped ones; repeatable.",
)
@option(
    "--expect",
    envvar="FOREWARN_EXPECT",
    metavar="[TYPE[/SOURCE]=]approve|ignore|either",
    multiple=True,
    help="What the handler should do with events of its VM: of all types, of one, or of one from one source (User, "
    "Platform); default: approve. TYPE can also be `shared`, for events that also name other VMs; default: either.",
)
@click.option(
    "--for-others", is_flag=True, help="Allow approvals of events that name only other VMs, as a leader gives them."
)
@option(
    "--prepared",
    type=FILE_PATH,
    envvar="FOREWARN_PREPARED",
    metavar="FILE",
    help="The file that the handler writes when it has prepared, relative to its working directory.",
)
@option(
    "--recovered",
    type=FILE_PATH,
    envvar="FOREWARN_RECOVERED",
    metavar="FILE",
    help="The file that the handler writes when it has recovered, relative to its working directory.",
)
@option(
    "--url-variable",
    envvar="FOREWARN_URL_VARIABLE",
    metavar="NAME",
    help="Pass the endpoint's URL in this variable, instead of using a sandbox.",
)
@option(
    "--net",
    is_flag=True,
    envvar="FOREWARN_NET",
    help="Let it reach other machines from its sandbox, with slirp4netns or pasta.",
)
@option("--reach", metavar="PORT[,PORT]", envvar="FOREWARN_REACH", callback=read_ports, help=REACH_HELP)
@option(
    "--one-shot",
    type=ONE_SHOT_SECONDS,
    envvar="FOREWARN_ONE_SHOT",
    metavar="SECONDS",
    help="Start the handler again every so many seconds, as cron or a timer does; it must end with exit code 0.",
)
@option(
    "--jobs",
    type=FROM_1,
    envvar="FOREWARN_JOBS",
    metavar="NUMBER",
    help="How many scenarios run at a time; default: three per core.",
)
@option(
    "--patience",
    type=FROM_1_TO_100,
    envvar="FOREWARN_PATIENCE",
    metavar="NUMBER",
    default=1.0,
    show_default=True,
    help="Multiply the time limit of each scenario, for slow machines.",
)
@click.option("--all", "all_", is_flag=True, help="Show every finding, every scenario and the program's last output.")
@click.option("--explain", is_flag=True, help="Show what each scenario checks, and run nothing.")
@option(
    "--junit",
    "report",
    type=FILE_PATH,
    envvar="FOREWARN_JUNIT",
    metavar="FILE",
    help="Also write the findings as JUnit XML.",
)
@upload_option
@output_option
def exam(
    command: Sequence[str],
    vm: str,
    only: Sequence[str],
    skip: Sequence[str],
    own: Sequence[Path],
    expect: Sequence[str],
    for_others: bool,
    prepared: Path | None,
    recovered: Path | None,
    url_variable: str | None,
    net: bool,
    reach: Sequence[int],
    one_shot: float | None,
    jobs: int | None,
    patience: float,
    all_: bool,
    explain: bool,
    report: Path | None,
    upload: bool,
    output: Output,
) -> None:
    """Run a handler in every scenario and grade it. Each scenario has its own service and runs faster than real time.

    The exam observes the handler's requests, approvals and exit, and the marker files that you name. The handler runs
    as a VM, in the sandbox of `forewarn run`, or without a sandbox if it gets a URL. The exit code is 0 if no check is
    broken, 1 if one is, 6 if the machine was too slow to finish.

    Example: forewarn exam --vm web-0 -- ./my-handler
    """
    with require_server():
        from forewarn.testing import exam as kit
    if own and (only or skip):
        raise CliError(ExitCode.USAGE, "--scenario runs only your own scenarios: omit --only and --skip")
    if len({path.stem for path in own}) < len(own):
        raise CliError(ExitCode.USAGE, "--scenario: two files have the same name; rename one of them")
    scenarios = [_own_scenario(kit, path) for path in own] or _chosen(kit, only, skip)
    if explain:
        _explain(scenarios, output)
        return
    if not command:
        raise CliError(
            ExitCode.USAGE, "specify COMMAND, such as `forewarn exam -- ./my-handler`; --explain shows the checks"
        )
    options = kit.ExamOptions(
        way=kit.LaunchOptions(
            command=tuple(command), url_variable=url_variable, net=net, reach=tuple(reach), interval=one_shot
        ),
        vm=vm,
        wishes=_expectations(kit, expect, for_others=for_others),
        markers=kit.Markers(prepared=prepared, recovered=recovered),
        limit=patience * kit.LIMIT,
        pace=patience,
    )
    _check_program(options)
    target = find_upload_target() if upload else None
    found = _run_exam(kit, options, scenarios, jobs)
    if report is not None:
        with atomic_write(report) as file:
            file.write(kit.junit(f"forewarn exam {' '.join(command)}", kit.cases(found)))
    if target is not None:
        upload_report(target, kit.api_report(found, command))
    _show(kit, found, output, every=all_)
    _write_unfinished(found, options, {path.stem: path for path in own})
    if not found.is_passed:
        raise click.exceptions.Exit(ExitCode.FAILED if found.broken else ExitCode.UNFINISHED)


def _chosen(kit: "ModuleType", only: Sequence[str], skip: Sequence[str]) -> "list[ExamScenario]":
    known = {scenario.name: scenario for scenario in kit.exam_scenarios()}
    for name in (*only, *skip):
        if name not in known:
            raise CliError(ExitCode.NOT_FOUND, f"the exam has no scenario {name}; `forewarn exam --explain` lists them")
    return [scenario for name, scenario in known.items() if (not only or name in only) and name not in skip]


def _own_scenario(kit: "ModuleType", path: Path) -> "ExamScenario":
    from forewarn.testing.scenario import ScenarioError

    try:
        found: ExamScenario = kit.own_scenario(path.stem, path.read_text("utf-8"))
    except (OSError, UnicodeError) as error:
        raise CliError(ExitCode.USAGE, f"--scenario: cannot read {path}: {error}") from None
    except (ScenarioError, kit.HandlerMissing) as error:
        raise CliError(ExitCode.USAGE, f"--scenario {path}: {error}") from None
    return found


def _expectations(kit: "ModuleType", texts: Sequence[str], *, for_others: bool) -> "Expectations":
    with usage_errors("--expect", kit.InvalidExpectation):
        parsed: Expectations = kit.parse_expectations(texts, for_others=for_others)
    return parsed


def _check_program(options: "ExamOptions") -> None:
    """Check before the start that the program exists and a sandbox is available."""
    program = options.way.command[0]
    if shutil.which(program) is None:
        raise CliError(ExitCode.USAGE, f"COMMAND: program {program} not found or not executable")
    if options.way.receives_url:
        return
    from forewarn.testing import sandbox

    if (why := sandbox.unavailable_reason()) is not None:
        raise CliError(
            ExitCode.USAGE, f"{why}; or pass the program a URL: --url-variable NAME, or {{url}} in the command"
        )


def _run_exam(
    kit: "ModuleType", options: "ExamOptions", scenarios: "Sequence[ExamScenario]", jobs: int | None
) -> "Report":
    # An exam that is ended by a signal must not leave programs behind.
    before = signal.signal(signal.SIGTERM, _interrupt)
    if options.markers.are_shared and len(scenarios) > 1:
        write_message(
            "All scenarios share the marker files, so they run one by one; for several at a time, name files such as "
            "{dir}/prepared."
        )
    try:
        with ExamProgress(options.limit) as progress:
            found: Report = kit.examine(options, scenarios, jobs=jobs, watcher=progress)
            return found
    except kit.LaunchFailed as error:
        raise CliError(ExitCode.USAGE, f"COMMAND: {error}") from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _explain(scenarios: "Sequence[ExamScenario]", output: Output) -> None:
    if output is Output.JSON:
        write_json(
            [
                {
                    "scenario": scenario.name,
                    "title": scenario.scenario().title,
                    "demands": [{"demand": d.key, "mood": d.polarity, "words": d.description} for d in scenario.checks],
                }
                for scenario in scenarios
            ]
        )
        return
    from forewarn.testing.exam import check_table

    usual = check_table.usual_rows(scenarios)
    rows = check_table.check_rows(scenarios)
    write_table(CHECKS, [(row.key, f"{row.polarity} {row.text}", places) for row, places in rows])
    write("")
    write_table(
        SCENARIOS,
        [
            (
                scenario.name,
                scenario.scenario().title,
                ", ".join(check_table.own_events(scenario)),
                "; ".join(
                    f"{word} {', '.join(keys)}" for word, keys in check_table.differences(scenario, usual).items()
                ),
            )
            for scenario in scenarios
        ],
    )


def _show(kit: "ModuleType", found: "Report", output: Output, *, every: bool) -> None:
    if output is Output.JSON:
        write_json(found.as_json)
        return
    write(kit.summary(found))
    for cause in kit.causes(found):
        for line in _cause_lines(kit, cause, found, every=every):
            write(line)
    for result in found.unexercised:
        write(f"? {result.scenario}: not judged: {kit.unexercised_reason(result)}")
    for result in found.unfinished:
        write(f"? {result.scenario}: {result.problem}")
    if every:
        rows = [(name, f.demand, f.verdict.value, f"{f.expected}. Seen: {f.seen}") for name, f in found.findings]
        write_table(FINDINGS, rows)
        write_table(RESULTS, [_row(kit, result) for result in found.results])
    _write_total(found)
    if not every:
        _write_not_judged(found)


def _scenarios(number: int) -> str:
    return "1 scenario" if number == 1 else f"{number} scenarios"


def _row(kit: "ModuleType", result: "Result") -> tuple[str, ...]:
    counts = (result.kept, result.warnings, result.broken, result.not_judged)
    return (result.scenario, kit.result_word(result), *(str(len(each)) for each in counts), f"{result.seconds:.1f} s")


def _cause_lines(kit: "ModuleType", cause: "Cause", found: "Report", *, every: bool) -> list[str]:
    mark, what = ("✗", "failed") if cause.is_broken else ("!", "warning")
    number, finding = len(cause.scenarios), cause.finding
    result = next(result for result in found.results if result.scenario == cause.scenarios[0])
    where = f"in {_scenarios(number)}" if number > 1 else f"in {result.scenario}"
    same = ", the same way" if number > 1 else ""
    lines = [f"{mark} {cause.demand}: " + (f"{where} {cause.summary}" if cause.summary else f"{what} {where}{same}")]
    lines += [f"    expected:  it {finding.expected}"]
    lines += [
        f"    seen:      {f'in {result.scenario}: ' if number > 1 else ''}{kit.with_labels(finding.seen, result)}"
    ]
    if cause.frame:
        lines.append(f"    at:        {cause.frame}")
    if finding.advice:
        lines.append(f"    advice:    {finding.advice}")
    if number > 1:
        names = cause.scenarios if every or number <= MAX_NAMES + 1 else cause.scenarios[:MAX_NAMES]
        more = f" and {number - len(names)} more" if len(names) < number else ""
        lines.append(f"    in:        {', '.join(names)}{more}")
    if cause.is_broken and result.tries > 1:
        lines += ["    tried:     twice, the second time alone; if the machine was still busy, try --patience 3"]
    printed = result.output.strip().splitlines()[-LAST_LINES:]
    if printed and (every or (result.exit_code is not None and not cause.frame)):
        lines += ["    printed:", *(f"      | {kit.with_labels(line, result)[:LONGEST_LINE]}" for line in printed)]
    return lines


def _write_total(found: "Report") -> None:
    kept, warnings, broken, not_judged = (sum(counts) for counts in zip(*map(_counts, found.results), strict=True))
    warned = f"{warnings} warning{'' if warnings == 1 else 's'}, " if warnings else ""
    write_message(f"Checks: {kept} kept, {warned}{broken} broken, {not_judged} not judged.")


def _write_not_judged(found: "Report") -> None:
    """Write the most frequent reasons for "not judged"."""
    reasons = Counter(finding.seen for result in found.results for finding in result.not_judged)
    if reasons:
        most = reasons.most_common(MAX_REASONS if len(reasons) == MAX_REASONS else MAX_REASONS - 1)
        others = reasons.total() - sum(number for _, number in most)
        parts = [f"{number} × {reason}" for reason, number in most] + ([f"{others} × other reasons"] if others else [])
        write_message(f"Not judged: {'; '.join(parts)}. `--all` shows each.")


def _write_unfinished(found: "Report", options: "ExamOptions", own: Mapping[str, Path]) -> None:
    """Write which scenarios did not finish, and how to run them again."""
    if not found.unfinished:
        return
    names = [result.scenario for result in found.unfinished]
    only = " ".join(f"--scenario {own[name]}" if name in own else f"--only {name}" for name in names)
    if all(result.is_starved for result in found.unfinished):
        why = "the machine was too slow, which is not a finding about the program. Run them again when it is less busy"
    else:
        why = "see above. The exam waited for the program; look at its last output with --all"
    write_message(f"Not finished: {', '.join(names)}: {why}, or give them more time:")
    write_message(
        f"  forewarn exam {only} --patience {TIME_FACTOR * options.pace:g} … -- {shlex.join(options.way.command)}"
    )


def _counts(result: "Result") -> tuple[int, int, int, int]:
    return len(result.kept), len(result.warnings), len(result.broken), len(result.not_judged)
