"""The errors of the rules: one tree, and one code for each."""

import inspect
import re

from forewarn.core import errors
from forewarn.core.errors import CoreError


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
