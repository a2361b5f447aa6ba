"""The base classes of Forewarn's errors: annotated fields, and a message template that is filled with them.

class VmNotFound(FleetError):
    '''No VM has this name.'''

    template = "VM {vm} does not exist"
    vm: str

raise VmNotFound("web-0")
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from inspect import get_annotations
from string import Formatter
from typing import Any, ClassVar, dataclass_transform, get_origin

_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class _MessageFormatter(Formatter):
    """Fills a template with the attributes of an error.

    A list is written as `a, b`, or as `a or b` with the format `:or`; a point in time as `2026-01-31 10:15:00Z`.
    """

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return an attribute of the error, which is the only argument."""
        del kwargs
        return getattr(args[0], str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format one value."""
        match value:
            case tuple() | list() if type(value) in (tuple, list):
                return (" or " if format_spec == "or" else ", ").join(map(str, value))
            case datetime():
                return f"{value:{format_spec or '%Y-%m-%d %H:%M:%SZ'}}"
            case _:
                return format(value, format_spec)


_formatter = _MessageFormatter()


def _is_class_variable(hint: object) -> bool:
    return ClassVar in (hint, get_origin(hint))


@dataclass_transform(eq_default=False)
class BaseError(Exception):
    """An error with the fields that its class annotates; they are the constructor's arguments, in this order.

    `template` is the message, with the names of fields or properties in braces. Errors can be pickled and copied.
    """

    template: ClassVar[str] = ""
    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # As in a dataclass: fields of the bases come first, and class variables are not fields.
        hints = {name: hint for base in reversed(cls.__mro__) for name, hint in get_annotations(base).items()}
        cls.fields = tuple(name for name, hint in hints.items() if not _is_class_variable(hint))

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self.fields, values, strict=False))
        if len(values) > len(self.fields) or given.keys() & named.keys() or named.keys() - set(self.fields):
            raise TypeError(f"{type(self).__name__} takes the fields {', '.join(self.fields)}, each once")
        given |= named
        if missing := [name for name in self.fields if name not in given and not hasattr(type(self), name)]:
            raise TypeError(f"{type(self).__name__} is missing {', '.join(missing)}")
        for name in self.fields:
            setattr(self, name, given[name] if name in given else getattr(type(self), name))
        # Exceptions are pickled and copied as their class and `args`.
        super().__init__(*(getattr(self, name) for name in self.fields))

    def __str__(self) -> str:
        return _formatter.vformat(self.template, (self,), {})


class CodedError(BaseError):
    """An error of the operator API: `code` is stable and meant for programs, the message is meant for people.

    The code is the name of the class with hyphens (`VmNotFound`: `vm-not-found`), unless the class has its own.
    """

    code: ClassVar[str]
    hidden_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that are part of the message only, not of the details."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" not in vars(cls):
            cls.code = _WORD_START.sub("-", cls.__name__).lower()

    @property
    def details(self) -> dict[str, Any]:
        """The fields that programs can read."""
        return {name: getattr(self, name) for name in self.fields if name not in self.hidden_fields}
