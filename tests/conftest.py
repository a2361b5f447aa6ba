"""What every test shares."""

from hypothesis import HealthCheck, settings

# A busy machine must not fail a test: no deadlines, and no complaint about slow drawing.
settings.register_profile("forewarn", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("forewarn")
