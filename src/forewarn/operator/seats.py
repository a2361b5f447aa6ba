"""How many may follow the journal at a time."""

from forewarn.operator.errors import TooManyWatchers

WATCHERS = 64
"""As many as this; others must be able to ask beside them."""


class Seats:
    """The places of those who follow the journal."""

    def __init__(self, number: int = WATCHERS) -> None:
        self._number = number
        self.taken = 0

    def take(self) -> None:
        """Take a place, if one is free."""
        if self.taken >= self._number:
            raise TooManyWatchers(self._number)
        self.taken += 1

    def leave(self) -> None:
        """Give a place back."""
        self.taken -= 1
