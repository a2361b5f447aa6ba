"""Optional dependencies: what is missing is named with the line to type."""

import pytest

from forewarn.cli import extras
from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.extras import require_cluster, require_server


def test_package_that_is_missing_on_import_is_named() -> None:
    with pytest.raises(CliError, match=r"uvloop.*extra \[server\]") as refused, require_server():
        raise ModuleNotFoundError("No module named 'uvloop'", name="uvloop")
    assert refused.value.code is ExitCode.USAGE


def test_package_that_would_be_missing_later_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "litestar" else object())
    with pytest.raises(CliError, match="litestar"), require_server():
        pass


def test_other_missing_module_is_an_error_of_our_own() -> None:
    with pytest.raises(ModuleNotFoundError), require_server():
        raise ModuleNotFoundError("No module named 'forewarn.nothing'", name="forewarn.nothing")


def test_missing_package_of_the_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with require_cluster():
        pass
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "nats" else object())
    with pytest.raises(CliError, match=r"nats-py.*extra \[cluster\]") as refused, require_cluster():
        pass
    assert refused.value.code is ExitCode.USAGE
