"""Computing and parsing of benchmark figures."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from bench import wrk
from bench.figures import format_number, percentile, ratio_of_rounds, rounded
from bench.guest_client import Response, parse_response
from bench.journal import read_late
from bench.nginx import OWN_HEADERS, configuration
from bench.process import read_cpu, read_resident
from forewarn.core.lifecycle import format_seconds as journal_seconds

ERRORS = wrk.Errors(connect=0, read=0, write=0, status=0, timeout=0)

# What wrk prints with our script.
PRINTED = """\
Running 3s test @ http://127.0.0.1:8180/metadata/scheduledevents
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   411.33us  201.55us   9.58ms   93.63%
    Req/Sec    77.60k     5.16k   85.92k    80.00%
  231735 requests in 3.00s, 64.31MB read
Requests/sec:  77219.25
Transfer/sec:     21.43MB
{"requests":231735,"bytes":67434885,"microseconds":3001004,\
"errors":{"connect":0,"read":0,"write":0,"status":0,"timeout":0}}
"""


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([7.0], 99, 7.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([float(n) for n in range(1, 1001)], 99, 990.0),
        ([float(n) for n in range(1, 1001)], 100, 1000.0),
        ([1.0, 2.0], 0, 1.0),
    ],
    ids=["one", "unsorted", "p99", "worst", "least"],
)
def test_percentile_is_one_of_the_measured_values(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_ratio_is_the_median_of_the_ratios_per_round() -> None:
    # Noise slows both sides of a round, so the ratio within a round stays right.
    assert ratio_of_rounds([90.0, 9.0, 80.0], [100.0, 10.0, 100.0]) == 0.9


def test_rounds_are_paired() -> None:
    with pytest.raises(ValueError, match="longer"):
        ratio_of_rounds([1.0], [1.0, 2.0])


def test_numbers_are_formatted_for_reading() -> None:
    assert (format_number(71234.5), rounded([1.26, 2.0]), rounded([1.256], 2)) == ("71,234", [1, 2], [1.26])


def test_wrk_summary_is_parsed() -> None:
    summary = wrk.read_summary(PRINTED)
    assert summary == wrk.Summary(requests=231735, bytes=67434885, microseconds=3001004, errors=ERRORS)
    assert round(summary.per_second) == 77219


def test_missing_wrk_summary_is_an_error() -> None:
    with pytest.raises(ValueError, match="no summary"):
        wrk.read_summary("unable to connect")


@pytest.mark.parametrize("received", [1000 * 291, 1000 * 291 + 32 * 291], ids=["exactly", "some-cut-off"])
def test_responses_of_expected_size_pass(received: int) -> None:
    wrk.check(
        wrk.Summary(requests=1000, bytes=received, microseconds=1, errors=ERRORS), answer_bytes=291, connections=32
    )


@pytest.mark.parametrize(
    "summary",
    [
        wrk.Summary(requests=1000, bytes=1000 * 280, microseconds=1, errors=ERRORS),
        wrk.Summary(requests=1000, bytes=1000 * 400, microseconds=1, errors=ERRORS),
        wrk.Summary(
            requests=1000,
            bytes=1000 * 291,
            microseconds=1,
            errors=wrk.Errors(connect=0, read=0, write=0, status=1, timeout=0),
        ),
    ],
    ids=["too-small", "too-large", "refused"],
)
def test_unexpected_responses_are_rejected(summary: wrk.Summary) -> None:
    with pytest.raises(ValueError, match=r"answer"):
        wrk.check(summary, answer_bytes=291, connections=32)


def test_wrk_script_defines_only_the_done_hook() -> None:
    """A request or response hook in the script would slow wrk down for both servers."""
    script = wrk.SCRIPT.read_text()
    assert [line for line in script.splitlines() if line.startswith("function")] == [
        "function done(summary, latency, requests)"
    ]


WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nETag: "a.1.b"\r\n\r\n{}'


def test_complete_response_is_parsed() -> None:
    expected = Response(200, [("Content-Length", "2"), ("ETag", '"a.1.b"')], b"{}", len(WHOLE))
    assert parse_response(WHOLE) == expected
    assert expected.header("etag") == '"a.1.b"'


@pytest.mark.parametrize("length", range(len(WHOLE)))
def test_incomplete_response_is_not_parsed(length: int) -> None:
    assert parse_response(WHOLE[:length]) is None


def test_response_without_body_ends_after_the_headers() -> None:
    received = b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n'
    assert parse_response(received) == Response(304, [("ETag", '"a"')], b"", len(received))


def test_nginx_sends_the_same_body_and_size_of_headers() -> None:
    answer = Response(200, [("Content-Type", "application/json")] + [("X", "y")] * 6, b'{"Events":[]}', 200)
    lines = configuration(Path("somewhere"), 8080, answer, padding=30).splitlines()
    fillers = [line for line in lines if line.startswith("add_header")]
    assert len(fillers) + len(OWN_HEADERS) == len(answer.headers)
    assert fillers[0] == f'add_header X-Filler-0 "{"x" * 30}";'
    assert "return 200 '{\"Events\":[]}';" in lines
    assert {"master_process off;", "access_log off;"} <= set(lines)


def test_resident_size_is_parsed() -> None:
    assert read_resident("Name:\tpython\nVmPeak:\t  2000 kB\nVmRSS:\t  31000 kB\nThreads:\t3\n") == 31000 * 1024


def test_missing_resident_size_is_an_error() -> None:
    with pytest.raises(ValueError, match="VmRSS"):
        read_resident("Name:\tkthreadd\n")


def test_processor_time_is_parsed_with_parentheses_in_the_program_name() -> None:
    fields = [str(number) for number in range(4, 53)]
    assert read_cpu(f"42 (a) 1 (b) S {' '.join(fields)}") == 14 + 15


def test_lateness_is_parsed_from_journal_lines() -> None:
    assert read_late(journal_seconds(timedelta(milliseconds=1234))) == 1.234


def test_wrk_summary_json_has_every_error_count() -> None:
    line = next(line for line in PRINTED.splitlines() if line.startswith("{"))
    assert tuple(json.loads(line)["errors"]) == wrk.Errors.__struct_fields__
