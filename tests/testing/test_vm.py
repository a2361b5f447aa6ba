"""A VM of the in-test service: its names and addresses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.client.errors import ClientError
from forewarn.testing.vm import EVENTS_PATH, Vm


class FakeApi:
    """A service that opens sockets."""

    def open_socket(self, vm: str) -> object:
        return SimpleNamespace(path=f"/sockets/{vm.replace('/', '.')}")


def a_vm(url: str = "http://127.0.0.1:8180") -> Vm:
    api: Any = FakeApi()
    return Vm(api, "web", "web-0", url)


def test_vm_has_a_full_name_a_url_and_an_environment() -> None:
    vm = a_vm()
    assert (vm.full_name, str(vm), vm.events_url) == ("web/web-0", "web/web-0", f"http://127.0.0.1:8180{EVENTS_PATH}")
    assert vm.environment == {"FOREWARN_ENDPOINT": "http://127.0.0.1:8180"}
    assert repr(vm) == "<VM web/web-0 at http://127.0.0.1:8180>"


def test_socket_is_opened_by_the_full_name() -> None:
    assert a_vm().socket == Path("/sockets/web.web-0")


def test_poll_of_an_endpoint_that_is_gone_fails_at_once() -> None:
    with pytest.raises(ClientError):
        a_vm("http://127.0.0.1:1").document()


def test_approval_names_at_least_one_event() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        a_vm().approve()
