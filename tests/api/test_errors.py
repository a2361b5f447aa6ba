"""Errors of the API client: one tree, and messages with what to do next."""

import inspect
import re

from forewarn.api import errors
from forewarn.api.errors import (
    NOT_FOUND_HINTS,
    AmbiguousService,
    ApiError,
    ConnectionClosed,
    NotFound,
    RequestRefused,
    ServiceUnreachable,
)


def test_error_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn = re.findall(r"[├└]── (\w+)", inspect.getdoc(errors) or "")
    classes = [name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, ApiError)]
    assert ["ApiError", *drawn] == classes


def test_refusal_says_what_the_service_says_and_keeps_its_code() -> None:
    refused = NotFound(404, "vm-not-found", "there is no VM x", {"vm": "x"})
    assert (str(refused), refused.status, refused.code, refused.details) == (
        "there is no VM x",
        404,
        "vm-not-found",
        {"vm": "x"},
    )
    assert isinstance(refused, RequestRefused)


def test_lost_connection_is_an_unreachable_service_with_a_reason_of_its_own() -> None:
    lost = ConnectionClosed("http://h")
    assert isinstance(lost, ServiceUnreachable)
    assert str(lost) == f"cannot reach http://h: {lost.why}"
    assert str(ConnectionClosed("http://h", "gone")) == "cannot reach http://h: gone"


def test_each_of_several_services_is_shown_with_the_option_that_chooses_it() -> None:
    error = AmbiguousService({"/a": "process 1", "/b": "process 2"})
    assert str(error).endswith("choose one: --data /a (process 1) or --data /b (process 2)")


def test_hints_belong_to_codes_of_objects_that_do_not_exist() -> None:
    assert [code for code in NOT_FOUND_HINTS if not code.endswith("-not-found")] == []
