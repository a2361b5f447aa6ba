"""`forewarn conformance`: output, report and exit code."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from forewarn.testing.conformance import RULES
from forewarn.testing.service import Forewarn
from tests.cli.in_process import CommandResult, run, run_on_terminal
from tests.support.program import Machine
from tests.testing.conformance.mock import VERSIONS, Headers, MockEndpoint, MockRequest, MockResponse, error, run_mock

EVENT_ID = "602D9444-D2CD-49C7-8624-8643E7171297"
EVIDENCE = ("kind", "source", "anchor")
QUICK = ("--pace", "10000", "--timeout", "30s")


class ListsNewestFirst(MockEndpoint):
    """Run an endpoint with one fault."""

    def versions(self) -> list[str]:
        return super().versions()[::-1]


class HasNoRequestIds(MockEndpoint):
    """Run an endpoint that differs from Forewarn's own choice."""

    def usual_headers(self, reply: MockResponse) -> Headers:
        return [pair for pair in super().usual_headers(reply) if pair[0] != "x-ms-request-id"]


class ServesNobody(MockEndpoint):
    """Run an endpoint without VMs."""

    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        return error(403, "who are you?")


def check(machine: Machine, mock: MockEndpoint, *options: str) -> CommandResult:
    with run_mock(mock) as url:
        return run(machine, "conformance", url, *QUICK, *options)


def test_conforming_endpoint_exits_with_0(machine: Machine) -> None:
    ended = check(machine, MockEndpoint())
    assert ended.code == 0
    head, *lines = ended.stdout.splitlines()
    assert head.split("  ")[0] == "ROW"
    assert [line.split()[0] for line in lines] == [row.id for row in RULES]
    assert f"{len(RULES)} rows at http://127.0.0.1:" in ended.stderr
    assert "0 wrong, 1 differs," in ended.stderr
    assert "Wrong:" not in ended.stderr


def test_summary_names_options_that_check_more(machine: Machine) -> None:
    assert check(machine, MockEndpoint()).stderr.endswith("More rows are checked with --approve, --burst, --watch.\n")
    assert "More rows are checked with --approve, --watch.\n" in check(machine, MockEndpoint(), "--burst").stderr


class RefusesApprovals(MockEndpoint):
    """Run an endpoint that has two faults and a difference."""

    def approve(self, body: bytes | None) -> MockResponse:
        return error(409, "not now")

    def usual_headers(self, reply: MockResponse) -> Headers:
        return [pair for pair in super().usual_headers(reply) if pair[0] != "x-ms-request-id"]


def test_problems_option_shows_wrong_rows_first_with_their_requests(machine: Machine) -> None:
    mock = RefusesApprovals()
    ended = check(machine, mock, "--problems", "--approve", mock.events[0]["EventId"])
    verdicts = [line.split()[1] for line in ended.stdout.splitlines()[1:]]
    assert verdicts == sorted(verdicts, reverse=True)
    lines = {line.split()[0]: line for line in ended.stdout.splitlines()}
    body = json.dumps({"StartRequests": [{"EventId": mock.events[0]["EventId"]}]}, separators=(",", ":"))
    assert (
        "the status is 409, not 200 (POST /metadata/scheduledevents?api-version=2020-07-01 "
        f"with Content-Type: application/json with the body {body}). Approving: "
    ) in lines["approve"]


def test_stderr_has_only_the_summary_without_a_terminal(machine: Machine) -> None:
    (line,) = check(machine, MockEndpoint()).stderr.splitlines()
    assert line.startswith(f"{len(RULES)} rows at http://127.0.0.1:")


def test_each_line_cites_its_rule(machine: Machine) -> None:
    lines = {line.split()[0]: line for line in check(machine, ListsNewestFirst()).stdout.splitlines()}
    assert lines["path-case"].split(maxsplit=2)[1:] == [
        "passed",
        "Requests: The path `/metadata/scheduledEvents` is served too (C)",
    ]
    assert "wrong" in lines["versions"]
    assert "the versions are not sorted, starting with 2017-03-01" in lines["versions"]
    assert "Requests: versions · `GET /metadata/versions` · the api-versions of the document" in lines["versions"]
    assert lines["versions"].endswith("[documented: Microsoft, “Azure Instance Metadata Service”, Versions]")
    assert "differs" in lines["wait-header"]
    assert "Forewarn-Wait is absent. Waiting instead of polling: Responses" in lines["wait-header"]
    assert "not checked" in lines["approve"]
    assert "--approve EVENTID" in lines["approve"]


def test_wrong_endpoint_exits_with_1_and_names_the_rows(machine: Machine) -> None:
    ended = check(machine, ListsNewestFirst())
    assert ended.code == 1
    assert ended.stderr.splitlines()[-1] == "Wrong: versions."


def test_problems_option_shows_only_problems(machine: Machine) -> None:
    ended = check(machine, ListsNewestFirst(), "--problems")
    assert ended.code == 1
    assert [line.split()[:2] for line in ended.stdout.splitlines()] == [
        ["ROW", "FINDING"],
        ["versions", "wrong"],
        ["wait-header", "differs"],
    ]
    assert f"{len(RULES)} rows at" in ended.stderr


def test_problems_option_shows_no_table_without_problems(machine: Machine, forewarn: Forewarn) -> None:
    ended = run(machine, "conformance", forewarn.vm("db-0").url, *QUICK, "--problems")
    assert (ended.code, ended.stdout) == (0, "")
    assert "0 wrong, 0 differ," in ended.stderr


def test_json_has_all_findings(machine: Machine) -> None:
    ended = check(machine, ListsNewestFirst(), "-o", "json")
    assert ended.code == 1
    told = json.loads(ended.stdout)
    assert list(told) == ["endpoint", "requests", "seconds", "passed", "wrong", "differs", "not_checked", "rows"]
    assert told["wrong"] == 1
    assert told["passed"] + told["wrong"] + told["differs"] + told["not_checked"] == len(told["rows"]) == len(RULES)
    (wrong,) = (row for row in told["rows"] if row["verdict"] == "wrong")
    assert list(wrong) == ["row", "section", "rule", "is_own", "verdict", "why", "seen", "seconds", *EVIDENCE]
    assert [wrong[key] for key in EVIDENCE] == [
        "documented",
        "Microsoft, “Azure Instance Metadata Service”, Versions",
        "docs/reference/guest-protocol.md#requests",
    ]
    assert wrong["seen"] == [
        f"GET /metadata/versions → 200 OK: {json.dumps({'apiVersions': VERSIONS[::-1]}, separators=(',', ':'))}"
    ]


def test_junit_report_is_written(machine: Machine) -> None:
    ended = check(machine, ListsNewestFirst(), "--junit", "findings.xml")
    assert ended.code == 1
    (suite,) = ElementTree.fromstring((machine.home / "findings.xml").read_bytes())
    cases = {case.get("name"): case for case in suite}
    assert list(cases) == [row.id for row in RULES]
    assert suite.get("failures") == "1"
    failure = cases["versions"].find("failure")
    assert failure is not None
    assert (failure.text or "").startswith("Rule: docs/reference/guest-protocol.md#requests, Requests: versions ·")
    assert "\nEvidence: documented, Microsoft, “Azure Instance Metadata Service”, Versions\n" in (failure.text or "")
    differs, unchecked = cases["wait-header"].find("skipped"), cases["approve"].find("skipped")
    assert differs is not None
    assert differs.get("message") == "differs: Forewarn-Wait is absent"
    assert unchecked is not None
    assert cases["query"].get("classname") == "conformance.requests"


def test_report_that_cannot_be_written_is_a_failure(machine: Machine) -> None:
    ended = check(machine, MockEndpoint(), "--junit", "nowhere/findings.xml")
    assert ended.code == 1
    assert "cannot write nowhere/findings.xml" in ended.stderr


@pytest.fixture(scope="module")
def forewarn() -> Iterator[Forewarn]:
    with Forewarn() as service:
        yield service


def test_approve_option_approves_the_event(machine: Machine, forewarn: Forewarn) -> None:
    event = forewarn.schedule("Reboot", "web-0")
    url = forewarn.vm("web-0").url
    assert run(machine, "conformance", url, *QUICK).code == 0
    assert event.state == "Scheduled"
    ended = run(machine, "conformance", url, *QUICK, "--approve", event.id.lower(), "--burst")
    assert ended.code == 0
    assert "0 wrong, 0 differ," in ended.stderr
    assert event.state == "Started"


def test_approve_option_can_name_two_events(machine: Machine, forewarn: Forewarn) -> None:
    first, second = (forewarn.schedule(type_, "BackEnd_IN_0", notice="1h") for type_ in ("Reboot", "Freeze"))
    ended = run(
        machine, "conformance", forewarn.vm("BackEnd_IN_0").url, *QUICK, "--approve", first.id, "--approve", second.id
    )
    assert ended.code == 0
    assert (first.state, second.state) == ("Started", "Started")
    lines = {line.split()[0]: line for line in ended.stdout.splitlines()}
    assert lines["approve-several"].split()[1] == "passed"


def test_watch_option_says_when_there_was_nothing_to_watch(machine: Machine) -> None:
    mock = MockEndpoint()
    mock.events.clear()
    ended = check(machine, mock, "--watch", "1h")
    assert ended.code == 0
    assert "--watch has no result: there was no Scheduled event to watch whose NotBefore is ahead.\n" in ended.stderr


class StartsEventsAtOnce(MockEndpoint):
    """Run an endpoint whose events start long before their NotBefore, as soon as a client does nothing but poll."""

    polls = 0
    last: MockRequest | None = None

    def query(self, asked: MockRequest, version: str) -> MockResponse:
        self.polls, self.last = self.polls + 1 if asked == self.last else 1, asked
        if self.polls > 3:
            for each in self.events:
                if each["EventStatus"] == "Scheduled":
                    self.start(each)
        return super().query(asked, version)


def test_watch_option_finds_an_early_start(machine: Machine) -> None:
    ended = check(machine, StartsEventsAtOnce(), "--watch", "1h", "--problems")
    assert ended.code == 1
    lines = {line.split()[0]: line for line in ended.stdout.splitlines()}
    assert "started 15m before its NotBefore" in lines["not-before-unapproved"]


def test_difference_from_our_own_choice_is_no_failure(machine: Machine) -> None:
    ended = check(machine, HasNoRequestIds())
    assert ended.code == 0
    assert "0 wrong, 2 differ," in ended.stderr


def test_unknown_event_is_reported(machine: Machine, forewarn: Forewarn) -> None:
    ended = run(machine, "conformance", forewarn.vm("db-0").url, *QUICK, "--approve", EVENT_ID)
    assert ended.code == 0
    assert f"Nothing was approved: event {EVENT_ID} is not in the document.\n" in ended.stderr


def test_endpoint_can_come_from_the_environment(machine: Machine, forewarn: Forewarn) -> None:
    ended = run(machine, "conformance", *QUICK, FOREWARN_ENDPOINT=forewarn.vm("db-0").url)
    assert ended.code == 0


def test_unknown_caller_exits_with_3(machine: Machine) -> None:
    """Nothing was checked, so a pipeline must not count this as a pass."""
    ended = check(machine, ServesNobody())
    assert ended.code == 3
    assert "does not serve this machine" in ended.stderr


def test_unreachable_endpoint_exits_with_5(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    ended = run(machine, "conformance", f"http://{host}:{port}", *QUICK)
    assert (ended.code, ended.stdout) == (5, "")
    assert f"cannot reach http://{host}:{port}" in ended.stderr
    assert "check the URL and that its service is running" in ended.stderr
    assert "FOREWARN_ENDPOINT" not in ended.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("http://127.0.0.1:1/metadata",), "forewarn: URL: 'http://127.0.0.1:1/metadata' is not a metadata endpoint"),
        (("http://127.0.0.1:1/vm/a",), "forewarn: URL: 'http://127.0.0.1:1/vm/a' is not a metadata endpoint"),
        (("127.0.0.1:1", "--approve", "all"), "--approve: all is not an event id"),
        (("127.0.0.1:1", *(("--approve", EVENT_ID) * 2)), "--approve: name at most 2 events, each once"),
        (("127.0.0.1:1", "--watch", "soon"), "--watch: 'soon' is not a duration"),
        (("127.0.0.1:1", "--watch", "0s"), "--watch must be greater than 0"),
        (("127.0.0.1:1", "--pace", "0"), "--pace must be above 0 and at most 10000 (got 0)"),
        (("127.0.0.1:1", "--timeout", "soon"), "--timeout: 'soon' is not a duration"),
        (("127.0.0.1:1", "--timeout", "0s"), "--timeout must be greater than 0"),
    ],
    ids=["url", "path", "approve", "approve twice", "watch", "no watch", "pace", "timeout", "no time"],
)
def test_wrong_usage_exits_with_2(machine: Machine, options: tuple[str, ...], why: str) -> None:
    ended = run(machine, "conformance", *options)
    assert ended.code == 2
    assert why in ended.stderr


def test_wrong_endpoint_of_the_environment_is_refused_by_its_variable(machine: Machine) -> None:
    ended = run(machine, "conformance", FOREWARN_ENDPOINT="ftp://x")
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.startswith("forewarn: FOREWARN_ENDPOINT: 'ftp://x' is not a metadata endpoint")


def test_table_fits_a_narrow_terminal(machine: Machine, forewarn: Forewarn) -> None:
    lines = run_on_terminal(machine, "conformance", forewarn.vm("db-0").url, *QUICK, columns=80)
    table = [line for line in lines if not line.startswith(("Checking", "\x1b"))]
    assert any(line.startswith("query ") for line in table)
    assert max(len(line) for line in table if "rows at" not in line) <= 80


def test_report_file_can_come_from_the_environment(machine: Machine, tmp_path: Path) -> None:
    with run_mock(MockEndpoint()) as url:
        run(machine, "conformance", url, *QUICK, FOREWARN_JUNIT=str(tmp_path / "of-environment.xml"))
    assert (tmp_path / "of-environment.xml").is_file()


def test_finding_names_the_request(machine: Machine) -> None:
    """So that implementers can repeat it; the plain query is omitted."""
    lines = {line.split()[0]: line for line in check(machine, ListsNewestFirst(), "--problems").stdout.splitlines()}
    assert "(GET /metadata/versions). Requests: " in lines["versions"]
    assert "Forewarn-Wait is absent. Waiting" in lines["wait-header"]
