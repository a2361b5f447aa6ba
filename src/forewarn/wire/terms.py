"""What both sides of a conversation keep to, so that neither has to know the other's half."""

LONGEST_WAIT = 60
"""How many seconds an answer is held at the most (PROTOCOL §9)."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""What some programs put before JSON; it is passed over."""
