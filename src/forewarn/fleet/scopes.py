"""Protocol by which the parts of the fleet use the whole: scopes, clock, replica and rule context."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from forewarn.clock import Clock
from forewarn.core.change import Change
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope
from forewarn.fleet.replica import Replica

R = TypeVar("R")


class Scopes(Protocol):
    """All scopes: to be read in the replica, and changed by rules alone."""

    clock: Clock
    replica: Replica

    @property
    def rule_context(self) -> RuleContext:
        """What holds outside the scopes."""
        ...

    async def apply(self, id_: str, rule: Callable[[Scope], Change[R]]) -> R:
        """Apply a rule to the newest value of a scope, save it, and return the rule's result."""
        ...
