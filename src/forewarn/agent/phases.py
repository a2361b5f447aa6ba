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


class PhaseTrigger(StrEnum):
    """Why a workflow changes its phase."""

    NOTIFIED = "handlers notified"
    PREPARED = "handlers done"
    APPROVAL_ALLOWED = "may approve"
    STARTED = "event Started"
    REMOVED = "event gone"
    POSTPONED = "event postponed"
    REBOOTED = "VM rebooted"
    REANNOUNCED = "event announced again"


PHASE_TRANSITIONS: dict[tuple[Phase, PhaseTrigger], Phase] = {
    (Phase.NOTICE, PhaseTrigger.NOTIFIED): Phase.PREPARE,
    (Phase.PREPARE, PhaseTrigger.PREPARED): Phase.READY,
    (Phase.READY, PhaseTrigger.APPROVAL_ALLOWED): Phase.APPROVE,
    **{
        (phase, PhaseTrigger.STARTED): Phase.IMPACT
        for phase in (Phase.NOTICE, Phase.PREPARE, Phase.READY, Phase.APPROVE)
    },
    **{(phase, PhaseTrigger.REMOVED): Phase.RECOVER for phase in Phase if phase is not Phase.RECOVER},
    # A later NotBefore leaves time for handlers that were skipped.
    (Phase.READY, PhaseTrigger.POSTPONED): Phase.PREPARE,
    (Phase.APPROVE, PhaseTrigger.POSTPONED): Phase.PREPARE,
    # A reboot before the event may have started again what the handlers had stopped.
    **{
        (phase, PhaseTrigger.REBOOTED): Phase.PREPARE
        for phase in (Phase.NOTICE, Phase.PREPARE, Phase.READY, Phase.APPROVE)
    },
    (Phase.RECOVER, PhaseTrigger.REANNOUNCED): Phase.NOTICE,
}
"""Every legal change of the phase. A workflow begins in notice, and is deleted when recover has finished."""


def next_phase(phase: Phase, trigger: PhaseTrigger) -> Phase:
    """Look up the next phase; a transition that is not in the table is a LookupError."""
    found = PHASE_TRANSITIONS.get((phase, trigger))
    if found is None:
        raise LookupError(f"a workflow in phase {phase.value} has no transition for {trigger.value!r}")
    return found


class HandlerCall(StrEnum):
    """The two calls of a handler: prepare, and recover to undo it."""

    PREPARE = "prepare"
    RECOVER = "recover"
