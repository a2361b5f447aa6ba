"""Number of examples of a property test: a tenth in a fast run (`--fast`)."""

from hypothesis import settings


def examples(count: int) -> int:
    """Return the number of examples for `max_examples`."""
    return max(5, count // 10) if settings.get_current_profile_name() == "fast" else count
