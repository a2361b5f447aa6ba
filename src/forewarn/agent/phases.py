"""Phases of an event's workflow, and the two handler calls: prepare and recover."""

from enum import StrEnum


class Phase(StrEnum):
    """The phases of an event's workflow, in their order."""

    NOTICE = "notice"
    PREPARE = "prepare"
    READY = "ready"
    APPROVE = "approve"
    IMPACT = "impact"
    RECOVER = "recover"


class HandlerCall(StrEnum):
    """The two calls of a handler: prepare, and recover to undo it."""

    PREPARE = "prepare"
    RECOVER = "recover"
