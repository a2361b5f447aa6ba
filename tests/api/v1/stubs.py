"""Stubs of modules whose types are derived at import: type checkers read the fields there."""

from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from forewarn.api.v1.common import Request, Response


def check_stub(module: ModuleType, head: str, tail: str, *, rewrite: bool) -> None:
    """Compare the stub beside a module with its API types; with `rewrite`, write it first."""
    stub = Path(str(module.__file__)).with_suffix(".pyi")
    structs = [each for each in vars(module).values() if _is_api_type(each)]
    text = head + "".join(_stub_of(struct) for struct in structs) + tail
    if rewrite:
        stub.write_text(text, encoding="utf-8")
    assert stub.read_text(encoding="utf-8") == text


def _is_api_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Request | Response) and value not in (Request, Response)


def _stub_of(struct: type[msgspec.Struct]) -> str:
    base = struct.__bases__[0]
    inherited = {field.name for field in msgspec.structs.fields(base)}
    lines = [
        f"    {field.name}: {_text_of(field.type)}{'' if field.required else ' = ...'}\n"
        for field in msgspec.structs.fields(struct)
        if field.name not in inherited
    ]
    return f"\nclass {struct.__name__}({base.__name__}, frozen=True, kw_only=True):\n" + "".join(lines)


def _text_of(type_: Any) -> str:
    """Return a type as source text, without the bounds that only the decoder checks."""
    alternatives = _alternatives(type_)
    if len(alternatives) > 1:
        return " | ".join(map(_text_of, sorted(alternatives, key=lambda each: each is NoneType)))
    (type_,) = alternatives
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_text_of, arguments))}]"
    if type_ in (Ellipsis, NoneType):
        return "..." if type_ is Ellipsis else "None"
    return str(type_.__name__)


def _alternatives(type_: Any) -> list[Any]:
    """Return the types of a union, also of one within it, or the type itself, without metadata."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return _alternatives(arguments[0])
    if origin in (Union, UnionType):
        return [each for argument in arguments for each in _alternatives(argument)]
    return [type_]
