"""From settings, and from this machine, to what an agent works with."""

import sys
from pathlib import Path

import pytest

from forewarn.agent.compose import boot_id


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells its boots apart")
def test_this_boot_is_the_same_whenever_it_is_asked_for() -> None:
    assert boot_id() == boot_id() != ""


def test_where_nobody_tells_boots_apart_it_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\xff")
    assert (boot_id(tmp_path / "nowhere"), boot_id(tmp_path / "odd")) == ("", "")
