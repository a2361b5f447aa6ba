"""Log formatters of service and agent: one line per record on stderr, as text or JSON, with secrets redacted."""

import json
import logging
import sys
from datetime import UTC, datetime
from types import TracebackType

import msgspec

from forewarn.core.text import escape_controls, escape_json
from forewarn.settings.types import LogFormat, LogSettings

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every record; all others are facts of the log call."""

TRACE_INDENT = "    "
"""Before every line of a stack trace."""

SysExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

REDACTED = "***"
MIN_SECRET_LENGTH = 4
"""Redacting shorter secrets would hide half of the log and protect nothing."""


class TextFormatter(logging.Formatter):
    """A record as text: time, level, logger, message and facts; then the stack trace of an error."""

    def __init__(self) -> None:
        super().__init__(TEXT)
        self._secrets: set[str] = set()

    def add_secret(self, secret: str) -> None:
        """Redact this secret, also in its JSON form, in all records: error messages may contain it."""
        if len(secret) >= MIN_SECRET_LENGTH:
            self._secrets |= {secret, msgspec.json.encode(secret).decode()[1:-1], json.dumps(secret)[1:-1]}

    def format(self, record: logging.LogRecord) -> str:
        """Format the record and redact secrets."""
        text = self._format_record(record)
        # Longer secrets first: one may be a prefix of another.
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, REDACTED)
        return text

    def _format_record(self, record: logging.LogRecord) -> str:
        return super().format(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's
        """Format the time in UTC."""
        return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%d %H:%M:%SZ}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's
        """Format the message and the facts on one line: text of users cannot look like another record."""
        facts = ", ".join(f"{name}={_value_text(value)}" for name, value in _facts(record).items())
        return escape_controls(super().formatMessage(record) + (f" ({facts})" if facts else ""))

    def formatException(self, ei: SysExcInfo) -> str:  # noqa: N802 - logging's
        """Format a stack trace, indented: no line of it can look like another record."""
        lines = super().formatException(ei).splitlines()
        return "\n".join(TRACE_INDENT + escape_controls(line) for line in lines)


class JsonFormatter(TextFormatter):
    """A record as one line of JSON: time, level, logger, message, facts, stack trace of an error."""

    def _format_record(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _facts(record)
        if record.exc_info:
            line["trace"] = logging.Formatter.formatException(self, record.exc_info)
        try:
            return escape_json(msgspec.json.encode(line, enc_hook=str).decode())
        except ValueError:  # text that is not valid Unicode, such as a file name or a program's output
            return json.dumps(line, default=str)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in STANDARD_ATTRIBUTES}


def _value_text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def configure_logging(settings: LogSettings) -> TextFormatter:
    """Configure logging, replacing any earlier configuration. Return the formatter, which can hide secrets."""
    formatter = JsonFormatter() if settings.format is LogFormat.JSON else TextFormatter()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=settings.level.number, force=True)
    logging.captureWarnings(capture=True)
    return formatter
