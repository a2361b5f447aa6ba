"""Files that commands write: replaced completely or not at all."""

from pathlib import Path

import pytest

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.files import atomic_write


def test_file_is_replaced_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "export.toml"
    path.write_text("old")
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_file_stays_as_it_was_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "export.toml"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as file:
        file.write(b"half" * (1 // (file.tell())))
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


def test_private_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "token", private=True) as file:
        file.write(b"secret")
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_unwritable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="No such file") as refused, atomic_write(tmp_path / "none" / "file"):
        raise AssertionError("it is open")
    assert refused.value.code is ExitCode.FAILED
