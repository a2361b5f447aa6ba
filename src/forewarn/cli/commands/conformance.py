"""`forewarn conformance`: check an endpoint against the guest protocol: Forewarn's, another mock, or Azure's."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import click

from forewarn.cli.colours import Colour
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.files import atomic_write
from forewarn.cli.options.common import ANY_NUMBER, FILE_PATH, option, origin_of, output_option, usage_errors
from forewarn.cli.options.endpoint import exit_code_for
from forewarn.cli.options.upload import find_upload_target, upload_option, upload_report
from forewarn.cli.output import Output, write_json, write_message
from forewarn.cli.views.progress import ProgressBar
from forewarn.cli.views.tables import Column, write_table
from forewarn.client import ClientError, NotAnEndpoint, Unreachable
from forewarn.client.endpoint import resolve_endpoint
from forewarn.core.duration import parse_duration
from forewarn.core.errors import Invalid
from forewarn.core.text import is_guid
from forewarn.testing.conformance import (
    RULES,
    Finding,
    Pace,
    Report,
    Verdict,
    api_report,
    cases,
    citation,
    examine,
    summary,
)
from forewarn.testing.conformance.probe import EVENTS_QUERY
from forewarn.testing.junit import junit

MAX_PACE = 10_000.0

MAX_APPROVED = 2
"""How many events can be approved: one for its life cycle, and one that an approval names together with it."""

PROBLEMS = (Verdict.WRONG, Verdict.DIFFERS)

UNREACHABLE_HINT = (
    "check the URL and that its service is running; `forewarn vm list` shows the URLs of the emulator's VMs"
)
"""What to do if the given endpoint does not answer."""

COLUMNS = (
    Column("ROW"),
    Column(
        "FINDING",
        colours={
            Verdict.PASSED: Colour.GOOD,
            Verdict.WRONG: Colour.BAD,
            Verdict.DIFFERS: Colour.WARNING,
            Verdict.UNCHECKED: Colour.DIM,
        },
    ),
    Column("WHAT WAS SEEN, AND THE RULE", can_fold=True),
)


@click.command()
@click.argument("url", metavar="[URL]", required=False, envvar="FOREWARN_ENDPOINT")
@click.option(
    "--approve",
    metavar="EVENTID",
    multiple=True,
    help="Approve this event, to check also the rules about approvals; twice: also an approval of two events.",
)
@click.option(
    "--problems", is_flag=True, help="Show only rows that are wrong, then those that differ; count the others."
)
@click.option("--burst", is_flag=True, help="Send 12 requests at once, to check rate limiting.")
@option(
    "--watch",
    envvar="FOREWARN_WATCH",
    metavar="DURATION",
    help="Watch for this long, at most, that no Scheduled event starts before its NotBefore.",
)
@option(
    "--pace",
    type=ANY_NUMBER,
    envvar="FOREWARN_PACE",
    metavar="NUMBER",
    default=4,
    show_default=True,
    help="Requests per second. A real endpoint accepts 5 per VM, including those of its handlers.",
)
@option(
    "--timeout",
    envvar="FOREWARN_TIMEOUT",
    metavar="DURATION",
    default="10s",
    show_default=True,
    help="How long a response may take.",
)
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
def conformance(
    url: str | None,
    approve: tuple[str, ...],
    problems: bool,
    burst: bool,
    watch: str | None,
    pace: float,
    timeout: str,
    report: Path | None,
    upload: bool,
    output: Output,
) -> None:
    """Check an endpoint against the protocol, row by row. Without URL, check 169.254.169.254.

    Without --approve, no request changes anything. "wrong" is only what Microsoft's documentation or captured traffic
    contradicts. Where Forewarn made its own choice, a difference is reported as "differs". The exit code is 0 if
    nothing is wrong, else 1.

    Example: forewarn conformance http://127.0.0.1:8180
    """
    _check_options(approve, pace)
    target = find_upload_target() if upload else None
    watch_seconds = 0.0 if watch is None else _seconds("--watch", watch)
    found = _run_checks(
        url, approve, burst=burst, watch=watch_seconds, pace=Pace(pace), timeout=_seconds("--timeout", timeout)
    )
    if report is not None:
        with atomic_write(report) as file:
            file.write(junit(f"forewarn conformance {found.endpoint}", cases(found), seconds=found.seconds))
    if target is not None:
        upload_report(target, api_report(found))
    _show(found, output, only_problems=problems)
    if approve:
        _write_unchecked(found, "approve", "Nothing was approved")
    if watch is not None:
        _write_unchecked(found, "not-before-unapproved", "--watch has no result")
    _write_summary(found, {"--approve": bool(approve), "--burst": burst, "--watch": watch is not None})


def _check_options(approve: tuple[str, ...], pace: float) -> None:
    for id_ in approve:
        if not is_guid(id_):
            raise CliError(ExitCode.USAGE, f"--approve: {id_} is not an event id; `forewarn guest list` shows them")
    if len(approve) > MAX_APPROVED or len({id_.upper() for id_ in approve}) < len(approve):
        raise CliError(ExitCode.USAGE, f"--approve: name at most {MAX_APPROVED} events, each once")
    if not 0 < pace <= MAX_PACE:
        raise CliError(ExitCode.USAGE, f"{origin_of('--pace')} must be above 0 and at most {MAX_PACE:g} (got {pace:g})")


def _run_checks(
    url: str | None, approve: tuple[str, ...], *, burst: bool, watch: float, pace: Pace, timeout: float
) -> Report:
    first, second, *_ = (*approve, None, None)
    done = 0
    try:
        with usage_errors("URL", NotAnEndpoint), ProgressBar("Checking", writes_end=False) as bar:

            def show(_: Finding) -> None:
                nonlocal done
                done += 1
                bar.show(done, len(RULES))

            return examine(
                resolve_endpoint(url),
                approve_event=first,
                approve_second=second,
                burst=burst,
                watch_seconds=watch,
                pace=pace,
                timeout=timeout,
                on_finding=show,
            )
    except Unreachable as error:
        raise CliError(
            exit_code_for(error), f"{error.what}; {error.advice if url is None else UNREACHABLE_HINT}"
        ) from error
    except ClientError as error:
        raise CliError(exit_code_for(error), str(error)) from error


def _show(found: Report, output: Output, *, only_problems: bool) -> None:
    if output is Output.JSON:
        counts = {verdict.replace(" ", "_"): found.count(verdict) for verdict in Verdict}
        write_json(
            {
                "endpoint": found.endpoint,
                "requests": found.requests,
                "seconds": found.seconds,
                **counts,
                "rows": found.findings,
            }
        )
        return
    shown = [finding for verdict in PROBLEMS for finding in found.of(verdict)] if only_problems else found.findings
    if shown:
        write_table(COLUMNS, ((finding.row, finding.verdict.value, _finding_text(finding)) for finding in shown))


def _finding_text(finding: Finding) -> str:
    if not finding.why:
        return citation(finding)
    # Omit the plain query. Show any other request, so that implementers can repeat it.
    request = finding.seen[-1].partition(" → ")[0] if finding.seen else ""
    of_what = f" ({request})" if request and request != str(EVENTS_QUERY) else ""
    evidence = f" [{finding.kind}: {finding.source}]" if finding.verdict is Verdict.WRONG else ""
    return f"{finding.why}{of_what}. {citation(finding)}{evidence}"


def _write_unchecked(found: Report, row: str, what: str) -> None:
    (finding,) = (finding for finding in found.findings if finding.row == row)
    if finding.verdict is Verdict.UNCHECKED:
        write_message(f"{what}: {finding.why}.")


def _write_summary(found: Report, options: Mapping[str, bool]) -> None:
    unused = [option_name for option_name, is_used in options.items() if not is_used]
    more = f" More rows are checked with {', '.join(unused)}." if unused and found.is_known_here else ""
    write_message(f"{summary(found)}{more}")
    if not found.is_known_here:
        raise CliError(ExitCode.REFUSED, f"{found.endpoint} does not serve this machine; run the command inside a VM")
    if wrong := found.of(Verdict.WRONG):
        write_message(f"Wrong: {', '.join(finding.row for finding in wrong)}.")
        raise click.exceptions.Exit(ExitCode.FAILED)


def _seconds(flag: str, duration: str) -> float:
    with usage_errors(flag, Invalid):
        seconds = parse_duration(duration) / timedelta(seconds=1)
    if seconds <= 0:
        raise CliError(ExitCode.USAGE, f"{origin_of(flag)} must be greater than 0")
    return seconds
