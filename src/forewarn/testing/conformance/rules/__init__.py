"""Every rule of the guest protocol that a client can check, in the order of docs/reference/guest-protocol.md."""

from collections.abc import Sequence

from forewarn.testing.conformance.rule import Rule
from forewarn.testing.conformance.rules import (
    approval,
    document,
    error_responses,
    instance,
    long_poll,
    requests,
    versions,
)

RULES: Sequence[Rule] = (
    *requests.RULES,
    *versions.RULES,
    *document.RULES,
    *approval.RULES,
    *error_responses.RULES,
    *instance.RULES,
    *long_poll.RULES,
)
