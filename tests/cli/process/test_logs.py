"""Log records as JSON and as text."""

import json
import logging
from pathlib import Path

from forewarn.cli.process.logs import JsonFormatter, TextFormatter


def test_record_is_one_line_of_json_with_its_facts() -> None:
    record = logging.LogRecord("forewarn.x", logging.WARNING, "x.py", 1, "two\nlines of %s", ("text",), None)
    record.created = 0.5
    record.vms, record.place = 3, Path("/data")
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.500000Z",
        "level": "warning",
        "logger": "forewarn.x",
        "message": "two\nlines of text",
        "vms": 3,
        "place": "/data",
    }


def test_record_of_an_error_has_its_stack_trace() -> None:
    bug = RuntimeError("a bug")
    record = logging.LogRecord("forewarn.x", logging.ERROR, "x.py", 1, "it broke", (), (RuntimeError, bug, None))
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line)["trace"].endswith("RuntimeError: a bug")


def test_record_with_invalid_unicode_is_still_one_line() -> None:
    record = logging.LogRecord("forewarn.x", logging.ERROR, "x.py", 1, "cannot read %s", ("Z\udcfcrich",), None)
    record.place = Path("/data")
    assert json.loads(JsonFormatter().format(record).encode("ascii"))["message"] == "cannot read Z\udcfcrich"


def test_record_as_text_has_its_facts() -> None:
    record = logging.LogRecord("forewarn.x", logging.INFO, "x.py", 1, "taken over", (), None)
    record.created = 0.5
    record.changed, record.vms = ["log.level", "gates"], 3
    line = TextFormatter().format(record)
    assert line == "1970-01-01 00:00:00Z INFO forewarn.x: taken over (changed=log.level,gates, vms=3)"


HOSTILE = "mark\n1970-01-01 00:00:00Z INFO forewarn.x: forged\r\x1b[2J\x9b2J\x85forged\u2028forged\u202eend"


def hostile_record() -> logging.LogRecord:
    """Return a record that has hostile text in its message, its arguments, its facts and its error."""
    bug = RuntimeError(HOSTILE)
    failed = (RuntimeError, bug, bug.__traceback__)
    record = logging.LogRecord("forewarn.x", logging.ERROR, "x.py", 1, f"{HOSTILE} of %s", (HOSTILE,), failed)
    record.vms, record.why = [HOSTILE], HOSTILE
    return record


def test_text_of_users_cannot_look_like_another_record() -> None:
    first, *trace = TextFormatter().format(hostile_record()).split("\n")
    assert first.count(r"mark\n1970-01-01") == 4
    assert all(line.startswith("    ") for line in trace)
    assert "".join((first, *trace)).isprintable()


def test_json_with_text_of_users_has_no_control_characters_and_the_same_value() -> None:
    line = JsonFormatter().format(hostile_record())
    assert line.isprintable()
    assert json.loads(line)["why"] == HOSTILE
