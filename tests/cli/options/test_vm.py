"""Options for the properties of VMs and scopes."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from forewarn.cli.errors import CliError, ExitCode
from forewarn.cli.options.common import Decorator
from forewarn.cli.options.vm import VM_OPTIONS, merge_changes, with_vm_changes, with_vm_options
from forewarn.core.vm import Traits


def invoke(decorate: Decorator, *arguments: str) -> dict[str, Any]:
    """Run a command with these options, and return its properties."""
    given: dict[str, Any] = {}

    @click.command()
    @decorate
    def command(properties: dict[str, Any]) -> None:
        given.update(properties)

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return given


def test_every_trait_has_an_option() -> None:
    assert [option.key for option in VM_OPTIONS] == list(Traits.__struct_fields__)


def test_only_properties_that_were_given_are_passed_on() -> None:
    assert invoke(with_vm_options) == {}
    assert invoke(with_vm_options, "--zone", "1", "--priority", "low") == {"zone": "1", "priority": "low"}


def test_cleared_property_is_null_and_a_cleared_list_is_empty() -> None:
    cleared = invoke(with_vm_changes("addresses", "host"), "--clear", "addresses", "--clear", "resource-group")
    assert cleared == {"addresses": (), "resource_group": None}


def test_unknown_property_is_not_cleared() -> None:
    with pytest.raises(CliError, match="colour") as refused:
        invoke(with_vm_changes("host"), "--clear", "colour")
    assert refused.value.code is ExitCode.USAGE


def test_command_that_changes_nothing_is_a_mistake() -> None:
    assert merge_changes({"zone": None}, {"host": "hv-0", "update_domain": None}) == {"zone": None, "host": "hv-0"}
    with pytest.raises(CliError) as refused:
        merge_changes({}, {"host": None})
    assert refused.value.code is ExitCode.USAGE
