"""The agent's composition root: the boot id."""

import sys
from pathlib import Path

import pytest

from forewarn.agent.compose import boot_id


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a boot id")
def test_boot_id_is_stable() -> None:
    assert boot_id() == boot_id() != ""


def test_unreadable_boot_id_is_empty(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\xff")
    assert (boot_id(tmp_path / "nowhere"), boot_id(tmp_path / "odd")) == ("", "")
