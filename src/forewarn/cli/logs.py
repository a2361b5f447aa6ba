"""What service and agent write to stderr: one line per record, as text or as JSON, without what is to be hidden."""

import json
import logging
import sys
from datetime import UTC, datetime

import msgspec

from forewarn.settings import LogFormat, LogSettings

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest are facts of its own."""

HIDDEN = "***"
SHORTEST_SECRET = 4
"""Shorter ones would black out half of the log, and protect nothing."""


class TextLines(logging.Formatter):
    """A record as people read it: when, how bad, who, what, and its facts; below it the trace of an error."""

    def __init__(self) -> None:
        super().__init__(TEXT)
        self._hidden: set[str] = set()

    def hide(self, secret: str) -> None:
        """Never write this, nor its JSON, wherever it comes from: an error's message may well have it."""
        if len(secret) >= SHORTEST_SECRET:
            self._hidden |= {secret, msgspec.json.encode(secret).decode()[1:-1], json.dumps(secret)[1:-1]}

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        text = self._written(record)
        # Longer ones first: one secret may be the beginning of another.
        for secret in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def _written(self, record: logging.LogRecord) -> str:
        return super().format(record)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's
        """Write the time as everything else here does, in UTC."""
        return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%d %H:%M:%SZ}"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's
        """Write the line."""
        facts = ", ".join(f"{name}={_listed(value)}" for name, value in _facts(record).items())
        return super().formatMessage(record) + (f" ({facts})" if facts else "")


class JsonLines(TextLines):
    """A record as one line of JSON: when, how bad, who, what; then its facts, and the trace of an error."""

    def _written(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _facts(record)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except ValueError:  # a name of the system's, say, or what a program printed, that is no Unicode
            return json.dumps(line, default=str)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in PLAIN}


def _listed(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def set_up(settings: LogSettings) -> TextLines:
    """Log as the settings say, in place of what was set up before; return what can be told to hide secrets."""
    lines = JsonLines() if settings.format is LogFormat.JSON else TextLines()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines)
    logging.basicConfig(handlers=[handler], level=settings.level.number, force=True)
    logging.captureWarnings(capture=True)
    # It tells of its own start and end, which are the service's.
    logging.getLogger("uvicorn").setLevel(max(settings.level.number, logging.WARNING))
    return lines
