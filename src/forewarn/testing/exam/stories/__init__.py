"""The scenarios that only the exam has: an endpoint that misbehaves, and surroundings that are not as one thinks."""
