"""Fixtures of the agent's tests."""

import logging

import pytest


@pytest.fixture
def no_stray_errors(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="forewarn.agent")


@pytest.fixture
def diary() -> list[str]:
    return []
