"""Garbage collection that keeps nobody waiting: the fleet stays, so to look through it for garbage is in vain.

To look through 100,000 VMs stops the service for a tenth of a second, and while many of them come it would happen again
and again. So what is there is exempt, once it is there, and all the rest is looked through seldom; what is young, where
nearly all garbage is, as often as ever.
"""

import gc

YOUNG = 1
SELDOM = 1_000
"""How often the young are looked through before everything is."""


def exempt_from_collection() -> None:
    """Let garbage collection pass over what is there after the start."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, SELDOM)


def exempt_newcomers() -> None:
    """Let it pass over what has come since, too: after an import."""
    gc.collect(YOUNG)
    gc.freeze()
