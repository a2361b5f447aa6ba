"""What the service writes to stderr: one line per record, as text or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime

import msgspec

from forewarn.settings import LogFormat, LogSettings

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""What every record has; the rest are facts of its own."""


class JsonLines(logging.Formatter):
    """A record as one line of JSON: when, how bad, who, what; then its facts, and the trace of an error."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        line: dict[str, object] = {
            "time": f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in PLAIN}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except ValueError:  # a name of the system's, say, that is no Unicode
            return json.dumps(line, default=str)


def set_up(settings: LogSettings) -> None:
    """Log as the settings say, in place of what was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format is LogFormat.JSON else logging.Formatter(TEXT))
    logging.basicConfig(handlers=[handler], level=settings.level.number, force=True)
    logging.captureWarnings(capture=True)
    # It tells of its own start and end, which are the service's.
    logging.getLogger("uvicorn").setLevel(max(settings.level.number, logging.WARNING))
