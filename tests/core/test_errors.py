"""The errors of the rules: one tree, and one code for each."""

import inspect
import re

from forewarn.core import errors
from forewarn.core.errors import CoreError, Invalid


def test_error_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn = re.findall(r"[├└]── (\w+)", inspect.getdoc(errors) or "")
    classes = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, CoreError) and value is not CoreError
    ]
    assert sorted(drawn) == sorted(classes)


def test_every_error_has_its_own_code() -> None:
    leaves = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, CoreError) and not value.__subclasses__()
    ]
    codes = [leaf.code for leaf in leaves]
    assert len(set(codes)) == len(codes)


def test_invalid_value_is_named_by_its_field_in_the_message_only() -> None:
    error = Invalid("must be at least 1", "gap")
    assert (str(error), error.problem, error.details) == ("gap: must be at least 1", "must be at least 1", {})
    assert str(Invalid("there are too many")) == "there are too many"
    assert str(Invalid("too long", "tags.\n\x1b[2J\u202e")) == r"tags.\n\x1b[2J\u202e: too long"


def test_field_of_an_invalid_value_is_below_that_of_its_object() -> None:
    assert Invalid("wrong", "start").below("policy.windows[0]").field == "policy.windows[0].start"
    assert Invalid("wrong").below("policy").field == "policy"
    assert Invalid("wrong", "gap").below("").field == "gap"
