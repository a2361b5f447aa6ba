"""Where the settings file and the data directory are."""

from pathlib import Path

import pytest

from forewarn.settings.load import find_data_directory, find_settings_file
from forewarn.settings.paths import user_cache_directory, user_data_directory


@pytest.mark.parametrize(
    ("system", "environ", "directory"),
    [
        ("linux", {"HOME": "/h"}, "/h/.local/share/forewarn"),
        ("linux", {"HOME": "/h", "XDG_DATA_HOME": "/x"}, "/x/forewarn"),
        ("linux", {"HOME": "/h", "XDG_DATA_HOME": "relative"}, "/h/.local/share/forewarn"),
        ("darwin", {"HOME": "/h", "XDG_DATA_HOME": "/x"}, "/h/Library/Application Support/forewarn"),
        ("win32", {"HOME": "/h", "LOCALAPPDATA": "/local"}, "/local/forewarn"),
    ],
    ids=["linux", "xdg", "relative xdg", "macos", "windows"],
)
def test_user_data_directory_follows_the_convention_of_the_system(
    system: str, environ: dict[str, str], directory: str
) -> None:
    assert user_data_directory(environ, system=system) == Path(directory)


@pytest.mark.parametrize(
    ("system", "environ", "directory"),
    [
        ("linux", {"HOME": "/h"}, "/h/.cache/forewarn"),
        ("linux", {"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/forewarn"),
        ("linux", {"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "/h/.cache/forewarn"),
        ("darwin", {"HOME": "/h"}, "/h/Library/Caches/forewarn"),
        ("win32", {"HOME": "/h", "LOCALAPPDATA": "/local"}, "/local/forewarn/cache"),
    ],
    ids=["linux", "xdg", "relative xdg", "macos", "windows"],
)
def test_user_cache_directory_follows_the_convention_of_the_system(
    system: str, environ: dict[str, str], directory: str
) -> None:
    assert user_cache_directory(environ, system=system) == Path(directory)


def written_to(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_settings_file_is_the_named_one_else_that_of_the_directory(tmp_path: Path) -> None:
    assert find_settings_file(None, {}, tmp_path) is None
    here = written_to(tmp_path / "forewarn.toml", "")
    assert find_settings_file(None, {}, tmp_path) == here
    assert find_settings_file(None, {"FOREWARN_CONFIG": "/a.toml"}, tmp_path) == Path("/a.toml")
    assert find_settings_file("/b.toml", {"FOREWARN_CONFIG": "/a.toml"}, tmp_path) == Path("/b.toml")


def test_data_directory_is_found_whatever_else_is_set(tmp_path: Path) -> None:
    file = written_to(tmp_path / "forewarn.toml", 'data = "d"\noperator = "0.0.0.0:1"\nspeed = "wrong"')
    assert find_data_directory(None, {}, file) == tmp_path / "d"
    assert find_data_directory(None, {"FOREWARN_DATA": "/e"}, file) == Path("/e")
    assert find_data_directory("/f", {"FOREWARN_DATA": "/e"}, file) == Path("/f")
    assert find_data_directory(None, {}, None) is None


def test_clients_ignore_unknown_keys_of_the_file(tmp_path: Path) -> None:
    file = written_to(tmp_path / "forewarn.toml", 'future = 1\ndata = "d"\n[unknown]\nx = 1')
    assert find_data_directory(None, {}, file) == tmp_path / "d"
    assert find_data_directory(None, {}, written_to(tmp_path / "other.toml", "future = 1")) is None


def test_file_is_not_read_if_the_data_directory_is_given(tmp_path: Path) -> None:
    broken = written_to(tmp_path / "forewarn.toml", "no [ TOML")
    assert find_data_directory("/f", {}, broken) == Path("/f")
    assert find_data_directory(None, {"FOREWARN_DATA": "/e"}, tmp_path / "missing.toml") == Path("/e")
