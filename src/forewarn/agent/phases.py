"""Phases of an event's workflow, and the two handler calls: prepare and recover."""

from enum import StrEnum


class Phase(StrEnum):
    """The steps of an event's walk, in their order."""

    NOTICE = "notice"
    PREPARE = "prepare"
    READY = "ready"
    APPROVE = "approve"
    IMPACT = "impact"
    RECOVER = "recover"


class HandlerCall(StrEnum):
    """What a handler does, and what it does to undo it."""

    PREPARE = "prepare"
    RECOVER = "recover"
