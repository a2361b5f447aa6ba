"""Generate the reference of the client library from its code: signatures and docstrings."""

import ast
import inspect
import re
from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from functools import cache
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any

import forewarn.client as client
from forewarn.client import discovery, errors

CHAPTERS: dict[str, tuple[str, ...]] = {
    "Clients": ("ScheduledEvents", "AsyncScheduledEvents"),
    "Document and events": ("Document", "Event", "Status", "EventType", "Source"),
    "Changes": ("Change", "Appeared", "Changed", "Started", "Gone", "Ending"),
    "Interruption": ("Interruption", "AsyncInterruption"),
    "Leader election": ("leader", "deputy", "is_leader", "is_deputy"),
    "Endpoint discovery": ("discover_endpoint",),
    "Errors": (
        *("ClientError", "NotAnEndpoint", "NotAnEvent", "Closed", "NotDiscovered", "Unreachable", "TooSlow"),
        *("Unavailable", "NotUnderstood", "NoName", "Refused", "NotAllowed", "NoSuchEvent", "NoVersion"),
    ),
}
"""Every public name, in reading order."""

TREES: tuple[ModuleType, ...] = (errors, discovery)
"""Modules whose docstrings draw a tree of errors."""

FOR_TESTS = {"monotonic", "sleep", "chance", "now"}
"""Parameters of the clients, and members, that are not for users."""
FOR_THE_CLIENT = {"follow"}

WIDEST = 100
CODE = re.compile(r"(async )?(with|for|from|import) ")


def reference() -> str:
    """Return the whole generated part of the page."""
    return "\n".join(line for chapter, names in CHAPTERS.items() for line in _chapter(chapter, names))


def _chapter(title: str, names: Sequence[str]) -> Iterator[str]:
    yield from (f"## {title}", "")
    if title == "Errors":
        yield from _errors(names)
        return
    for name in names:
        yield from _entry(name, getattr(client, name))


def _entry(name: str, value: Any) -> Iterator[str]:
    yield from (f"### `{name}`", "")
    if isinstance(value, FunctionType):
        yield from _fenced(_signature(value, name))
        yield from _prose(value)
    elif isinstance(value, type):
        yield from _class(name, value)
    else:
        yield from (f"`{' | '.join(each.__name__ for each in value.__args__)}`", "")


def _class(name: str, kind: type) -> Iterator[str]:
    if name in CHAPTERS["Clients"]:
        yield from _fenced(_signature(vars(kind)["__init__"], name))
    yield from _prose(kind)
    if rows := list(_fields(kind)):
        yield from (
            "| member | value | |" if issubclass(kind, Enum) else "| field | type | |",
            "|---|---|---|",
            *rows,
            "",
        )
    for member, value in _members(kind).items():
        if isinstance(value, property):
            assert value.fget is not None
            yield from (f"#### `{name}.{member}` → `{_returns(value.fget)}`", "")
            yield from _prose(value.fget)
        else:
            yield from (f"#### `{name}.{member}`", "")
            yield from _fenced(_signature(value, member))
            yield from _prose(value)


def _errors(names: Sequence[str]) -> Iterator[str]:
    for module in TREES:
        yield from _fenced(inspect.cleandoc(module.__doc__ or "").partition("\n\n")[2].partition("\n\n")[0])
    yield inspect.cleandoc(errors.__doc__ or "").rpartition("\n\n")[2].replace("\n", " ")
    yield from ("", "| error | what happened | what to do |", "|---|---|---|")
    trouble = [getattr(client, name) for name in names] + discovery.NotDiscovered.__subclasses__()
    for error in trouble:
        yield f"| `{error.__name__}` | {_first_sentences(error)} | {error.advice} |"
    yield ""


def _first_sentences(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


def _prose(value: Any) -> Iterator[str]:
    """Yield the paragraphs of a docstring; examples and lists keep their lines."""
    for paragraph in (inspect.getdoc(value) or "").split("\n\n"):
        if CODE.match(paragraph):
            yield from _fenced(paragraph)
        else:
            yield from (re.sub(r"\n(?!- )\s*", " ", paragraph), "")


def _fenced(code: str) -> Iterator[str]:
    yield from ("```python" if "─" not in code else "```", *code.splitlines(), "```", "")


def _members(kind: type) -> dict[str, Any]:
    """Return the public methods and properties, including those of our base classes, in the order of the code."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("forewarn.client."):
            found |= vars(base)
    return {
        name: value
        for name, value in found.items()
        if not name.startswith("_") and name not in FOR_THE_CLIENT and isinstance(value, (FunctionType, property))
    }


def _fields(kind: type) -> Iterator[str]:
    """Yield a row for each field of a value or member of an enum."""
    body = _node(kind).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        said = following.value.value if _is_docstring(following) else ""
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                yield f"| `{name}` | `{ast.unparse(annotation).replace('|', chr(92) + '|')}` | {_one_line(said)} |"
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                yield f'| `{name}` | `"{value}"` | {_one_line(said)} |'
            case _:
                pass


def _is_docstring(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _signature(function: Any, name: str) -> str:
    """Return the signature, with types as in the code and defaults as values."""
    node, inner = _node(function), inspect.unwrap(function)
    texts = {arg.arg: ast.unparse(arg.annotation) for arg in _arguments(node) if arg.annotation is not None}
    is_constructor = name in CHAPTERS["Clients"]
    parameters = list(_parameters(inspect.signature(inner), texts, FOR_TESTS if is_constructor else ()))
    result = "" if is_constructor else f" -> {_returns(function)}"
    call = "async def" if isinstance(node, ast.AsyncFunctionDef) and not _is_context(node) else "def"
    start = name if is_constructor else f"{call} {name}"
    line = f"{start}({', '.join(parameters)}){result}"
    if len(line) <= WIDEST:
        return line
    return "\n".join([f"{start}(", *(f"    {parameter}," for parameter in parameters), f"){result}"])


def _parameters(signature: inspect.Signature, texts: dict[str, str], hidden: Collection[str]) -> Iterator[str]:
    is_star_due = True
    for name, parameter in signature.parameters.items():
        if name == "self" or name in hidden:
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            is_star_due = False
            yield f"*{name}: {texts[name]}"
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and is_star_due:
            is_star_due = False
            yield "*"
        yield f"{name}: {texts[name]}{_default(parameter.default)}"


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return f" = {value!r}" if value is None or isinstance(value, (str, int, float, bool)) else " = …"


def _returns(function: Any) -> str:
    node = _node(function)
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    assert node.returns is not None
    text = ast.unparse(node.returns).strip("'")
    if _is_context(node):
        kind = "AbstractAsyncContextManager" if isinstance(node, ast.AsyncFunctionDef) else "AbstractContextManager"
        return re.sub(r"^(Async)?Iterator", kind, text)
    return text


def _is_context(node: ast.AST) -> bool:
    names = [ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ())]
    return bool({"contextmanager", "asynccontextmanager"} & set(names))


def _arguments(node: Any) -> list[ast.arg]:
    taken = node.args
    return [*taken.posonlyargs, *taken.args, *([taken.vararg] if taken.vararg else []), *taken.kwonlyargs]


@cache
def _node(value: Any) -> Any:
    """Return the syntax tree of a class or function."""
    return ast.parse(dedent(inspect.getsource(inspect.unwrap(value)))).body[0]
