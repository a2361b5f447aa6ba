"""The steps of an event's walk, and the two of them in which something is done."""

from enum import StrEnum


class Phase(StrEnum):
    """The steps of an event's walk, in their order."""

    NOTICE = "notice"
    PREPARE = "prepare"
    READY = "ready"
    APPROVE = "approve"
    IMPACT = "impact"
    RECOVER = "recover"


class Half(StrEnum):
    """What a handler does, and what it does to undo it."""

    PREPARE = "prepare"
    RECOVER = "recover"
