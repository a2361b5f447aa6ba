"""The agent's log: one line of JSON for each record, without the secrets that it was told to hide."""

import logging
from datetime import UTC, datetime

import msgspec

LOGGER = "forewarn.agent"

PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest are facts of its own."""

HIDDEN = "***"
SHORTEST_SECRET = 4
"""Shorter ones would black out half of the log, and protect nothing."""


class JsonLines(logging.Formatter):
    """A record as one line of JSON: when, how bad, who, what; then its facts, and the trace of an error."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden: set[str] = set()

    def hide(self, secret: str) -> None:
        """Never write this, nor its JSON, wherever it comes from: an error's message may well have it."""
        if len(secret) >= SHORTEST_SECRET:
            self._hidden |= {secret, msgspec.json.encode(secret).decode()[1:-1]}

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
        # Programs and file names may have brought what is no text, and no JSON either.
        text = msgspec.json.encode({name: _text(value) for name, value in line.items()}, enc_hook=str).decode()
        # Longer ones first: one secret may be the beginning of another.
        for secret in sorted(self._hidden, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text


def _text(value: object) -> object:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
