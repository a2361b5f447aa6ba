"""Asking the agents of the other VMs whether they are ready. Whoever does not say so is not."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from forewarn.client.document import plain


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """Where the other agents are, and the secret that all of them share."""

    addresses: Mapping[str, str]
    """By the VM's resource name, the URL of its agent: `http://10.0.0.5:9180`."""
    secret: bytes
    timeout: timedelta = timedelta(seconds=3)

    @property
    def names(self) -> frozenset[str]:
        """The VMs that can be asked, as names are compared."""
        return frozenset(plain(name) for name in self.addresses)
