"""Names consist of the glossary's words and a short list of general ones, and no retired word is used."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest


def listed_words(name: str) -> tuple[str, ...]:
    """Return the words of a list beside this file, without its comments."""
    lines = Path(__file__).with_name(name).read_text().splitlines()
    return tuple(line for line in lines if not line.startswith("#"))


GENERAL_WORDS = listed_words("general_words.txt")
"""Words of class and module names that need no explanation. A new one is added only if no listed word will do."""

MAX_GENERAL_WORDS = 300

RETIRED_WORDS = listed_words("retired_words.txt")
"""Words of former names that the glossary does not define: metaphors, activities, and words with a better one now."""

MAX_OWN_TERMS = 35
"""Terms of our own have to be learned, so they stay few. Engineers of the field know the other terms."""

ING_MODULES = {"testing": "public package name, and the field's word for it"}
"""Modules and packages that may end in -ing, each with its reason. Others are named by a noun."""

PUBLIC_NAMES = {
    "AlreadyStarted": "forewarn.testing",
    "Appeared": "forewarn.client",
    "Ending": "forewarn.client",
    "Forewarn": "forewarn.testing",
    "Gone": "forewarn.client",
    "NoName": "forewarn.client",
    "NoSuchEvent": "forewarn.client",
    "NoVersion": "forewarn.client",
    "NotAnEndpoint": "forewarn.client",
    "NotAnEvent": "forewarn.client",
    "NotDiscovered": "forewarn.client",
    "NotUnderstood": "forewarn.client",
    "Pace": "forewarn.testing.conformance",
    "TooSlow": "forewarn.client",
}
"""Class names with words from outside the lists, each with its reason: the package that exports it to users."""

TERM = re.compile(r"^\| `?([^|`]+)`? \| (.+) \|$", re.MULTILINE)
TABLE_HEAD = "word"
SOURCE_PATH = re.compile(r"`([a-z0-9_/]+(?:\.py|/))`")
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+|[0-9]+")
KEYWORD = re.compile(r"[A-Za-z][\w.-]*")
"""A string constant without spaces: a TOML key, an option, an enum value, a word of the scenario language."""

PACKAGES = {"forewarn": "src/forewarn", "bench": "bench", "tests": "tests"}
MODULE_NAME = re.compile(rf"(?<![\w./@:-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+(?::\w+)?")
IMPORT_STATEMENT = re.compile(rf"from ((?:{'|'.join(PACKAGES)})(?:\.\w+)*) import (\w+(?:, \w+)*)")
SHORT_NAME = re.compile(r"`((?:core|wire)(?:\.\w+)+)")
"""A name of code without `forewarn.`, in packages whose names begin neither a file's name nor a setting's."""

LOGGERS = {
    "forewarn.agent": "the agent as a whole, and what its handlers report of it",
    "forewarn.agent.event": "the handler `log`; docs/howto/agent/log.md filters by it",
    "forewarn.service": "start and end of `forewarn serve`, whatever module runs it",
}
"""Loggers whose names do not follow their modules, each with its reason: users filter their logs by them."""

PLANTED = "planted"
"""Modules of this name exist only in the copy of the tree in which the checks of `make check` are tested."""


class Name(NamedTuple):
    """A public class or a module, and the file that it is in or is."""

    text: str
    path: str


def words_of(name: str) -> tuple[str, ...]:
    """Split CamelCase, snake_case or text into lower-case words."""
    return tuple(word.lower() for word in WORD.findall(name))


@cache
def base_forms(word: str) -> frozenset[str]:
    """Return the word and everything it can be a regular form of.

    Allowed are the plural (`policies` of policy) and the forms -ed, -er, -or, -ion and -ation of a verb (`scheduled`
    and `scheduler` of schedule, `planner` of plan, `notifier` of notify), also in the plural. Irregular forms have to
    be listed themselves.
    """
    forms = {word} | set(_without(word, ("s", ""), ("es", ""), ("ies", "y")))
    for form in tuple(forms):
        stems = set(_without(form, ("ed", ""), ("er", ""), ("or", ""), ("ion", ""), ("ation", "")))
        doubled = {stem[:-1] for stem in stems if stem[-1] == stem[-2]}
        silent_e = set(_without(form, ("ed", "e"), ("er", "e"), ("or", "e"), ("ion", "e"), ("ation", "e")))
        forms |= stems | doubled | silent_e | set(_without(form, ("ied", "y"), ("ier", "y")))
    return frozenset(forms)


def _without(word: str, *endings: tuple[str, str]) -> Iterator[str]:
    for ending, replacement in endings:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 2:
            yield stem + replacement


def terms_of(glossary: str) -> list[str]:
    """Return the first column of the glossary's tables, without their heads."""
    return [term for term, _ in TERM.findall(glossary) if term not in {TABLE_HEAD, "---"}]


def is_used(term: tuple[str, ...], identifiers: Iterable[tuple[str, ...]]) -> bool:
    """Return whether an identifier contains the term's words in sequence, in these or regular forms."""
    return any(
        all(word in base_forms(other) for word, other in zip(term, identifier[start:], strict=False))
        for identifier in identifiers
        for start in range(len(identifier) - len(term) + 1)
    )


def modules_of(source: Path) -> Iterator[Name]:
    for path in source.rglob("*.py"):
        relative = path.relative_to(source)
        yield Name(relative.parent.name if path.stem == "__init__" else path.stem, relative.as_posix())


def classes_of(source: Path) -> Iterator[Name]:
    for path, tree in trees_below(source):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield Name(node.name, path.relative_to(source).as_posix())


def trees_below(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield every Python file below the folder, parsed.

    They are not kept: with millions of objects in the process, each garbage collection would take seconds.
    """
    return ((path, ast.parse(path.read_text())) for path in sorted(folder.rglob("*.py")))


def strings_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def identifiers_in(tree: ast.AST) -> Iterator[str]:
    """Return names of classes, functions, parameters, variables and attributes, and strings that are keywords."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Constant(value=str(text)) if KEYWORD.fullmatch(text):
                yield text
            case _:
                pass


def unknown_words(names: Iterable[Name], vocabulary: set[str]) -> dict[Name, list[str]]:
    unknown = {name: [w for w in words_of(name.text) if base_forms(w).isdisjoint(vocabulary)] for name in names}
    return {name: words for name, words in unknown.items() if words and name.text not in PUBLIC_NAMES}


def retired_names(names: Iterable[Name]) -> list[Name]:
    return [name for name in names if name.text not in PUBLIC_NAMES and any(map(is_retired, words_of(name.text)))]


def is_retired(word: str) -> bool:
    return not base_forms(word).isdisjoint(RETIRED_WORDS)


def ing_modules(source: Path) -> set[Name]:
    return {name for name in modules_of(source) if name.text.endswith("ing") and name.text not in ING_MODULES}


def unused_terms(glossary: str, source: Path) -> list[str]:
    """Return terms whose words never follow each other in an identifier, a module name or a keyword-like string."""
    identifiers = {words_of(name) for _, tree in trees_below(source) for name in identifiers_in(tree)}
    identifiers |= {words_of(name.text) for name in modules_of(source)}
    return [term for term in terms_of(glossary) if not is_used(words_of(term), identifiers)]


def missing_paths(glossary: str, source: Path) -> list[str]:
    paths = [path for _, meaning in TERM.findall(glossary) for path in SOURCE_PATH.findall(meaning)]
    return [path for path in paths if not (source / path).exists()]


@pytest.fixture(scope="module")
def source(root: Path) -> Path:
    return root / "src/forewarn"


@pytest.fixture(scope="module")
def glossary(root: Path) -> str:
    return (root / "docs/glossary.md").read_text()


@pytest.fixture(scope="module")
def term_words(glossary: str) -> set[str]:
    return {word for term in terms_of(glossary) for word in words_of(term)}


@pytest.fixture(scope="module")
def names(source: Path) -> list[Name]:
    """Every public class name and every module name."""
    return sorted({*modules_of(source), *classes_of(source)})


def test_names_consist_of_listed_words(names: list[Name], term_words: set[str]) -> None:
    assert unknown_words(names, term_words | set(GENERAL_WORDS)) == {}


def test_general_words_are_few_sorted_and_not_repeated(term_words: set[str]) -> None:
    assert len(GENERAL_WORDS) <= MAX_GENERAL_WORDS
    assert list(GENERAL_WORDS) == sorted(set(GENERAL_WORDS))
    assert term_words & set(GENERAL_WORDS) == set()


def test_general_words_are_base_forms() -> None:
    listed = set(GENERAL_WORDS)
    assert {word: forms for word in GENERAL_WORDS if (forms := (base_forms(word) - {word}) & listed)} == {}


def test_every_general_word_is_used(names: list[Name]) -> None:
    used = {form for name in names for word in words_of(name.text) for form in base_forms(word)}
    assert set(GENERAL_WORDS) - used == set()


def test_retired_words_are_sorted_and_not_repeated() -> None:
    assert list(RETIRED_WORDS) == sorted(set(RETIRED_WORDS))


def test_retired_words_do_not_come_back(names: list[Name], term_words: set[str]) -> None:
    assert term_words.isdisjoint(RETIRED_WORDS)
    assert [word for word in GENERAL_WORDS if is_retired(word)] == []
    assert retired_names(names) == []


def test_modules_are_named_by_nouns(source: Path) -> None:
    assert ing_modules(source) == set()
    assert set(ING_MODULES) <= {name.text for name in modules_of(source)}


def test_exempt_names_are_public_and_need_it(names: list[Name], term_words: set[str]) -> None:
    vocabulary = term_words | set(GENERAL_WORDS)
    assert set(PUBLIC_NAMES) <= {name.text for name in names}
    for name, package in PUBLIC_NAMES.items():
        assert name in import_module(package).__all__
        assert any(base_forms(word).isdisjoint(vocabulary) for word in words_of(name)), name


def test_glossary_sections_are_sorted_without_repeats(glossary: str) -> None:
    sections = [terms_of(section) for section in glossary.split("\n## ")[1:]]
    assert sections == [sorted(terms, key=lambda term: term.replace("_", " ").casefold()) for terms in sections]
    terms = [term.casefold() for term in terms_of(glossary)]
    assert len(terms) == len(set(terms))


def test_own_terms_are_few(glossary: str) -> None:
    _, own, _, _ = glossary.split("\n## ")
    assert own.startswith("Forewarn's own terms\n")
    assert 0 < len(terms_of(own)) <= MAX_OWN_TERMS


def test_glossary_defines_the_central_terms(glossary: str) -> None:
    central = {
        "agent", "approval", "blocker", "campaign", "document", "enablement", "epoch", "event", "fleet", "guest",
        "handler", "hold", "idempotency key", "impact", "incarnation", "journal", "long poll", "middleware", "notice",
        "pagination", "platform", "rate limiter", "reconcile", "record", "replica", "scheduler", "scope", "transition",
        "wave", "workflow",
    }  # fmt: skip
    assert central - set(terms_of(glossary)) == set()


def test_every_glossary_entry_is_used_by_the_code(glossary: str, source: Path) -> None:
    assert unused_terms(glossary, source) == []


def test_paths_in_the_glossary_exist(glossary: str, source: Path) -> None:
    assert missing_paths(glossary, source) == []


def test_violations_are_found(tmp_path: Path) -> None:
    (tmp_path / "reading.py").write_text("class ScopeShelf: ...\n\n\nclass ScopeGadget: ...\n")
    module, shelf, gadget = names = [
        *modules_of(tmp_path),
        *classes_of(tmp_path),
    ]
    assert unknown_words(names, {"scope", "shelf", "read"}) == {module: ["reading"], gadget: ["gadget"]}
    assert retired_names(names) == [module, shelf]
    assert ing_modules(tmp_path) == {module}
    glossary = "| scope | a group (`reading.py`) |\n| rate limiter | counts (`guest/rate_limit.py`) |\n"
    assert unused_terms(glossary, tmp_path) == ["rate limiter"]
    assert missing_paths(glossary, tmp_path) == ["guest/rate_limit.py"]


@pytest.mark.parametrize(
    ("word", "base"),
    [
        ("policies", "policy"),
        ("listeners", "listen"),
        ("scheduled", "schedule"),
        ("planner", "plan"),
        ("notifier", "notify"),
        ("injector", "inject"),
        ("creation", "create"),
        ("expectation", "expect"),
        ("cancelled", "cancel"),
    ],
)
def test_regular_forms_are_recognised(word: str, base: str) -> None:
    assert base in base_forms(word)


def test_words_are_split() -> None:
    assert words_of("HttpAPIServer") == ("http", "api", "server")
    assert words_of("v1") == ("v1",)
    assert words_of("compare-and-swap") == words_of("compare_and_swap") == ("compare", "and", "swap")


def test_use_means_adjacent_words() -> None:
    assert is_used(("rate", "limit"), {("new", "rate", "limiter")})
    assert not is_used(("rate", "limit"), {("rate", "of", "limit"), ("limit",)})


def named_modules(root: Path) -> dict[str, set[str]]:
    """Return dotted names below the packages that strings, settings and pages mention, with their files.

    `forewarn.toml` and `forewarn.advance` (a file, a fixture's method) name no part, and are left out; so are the
    loggers of `LOGGERS`.
    """
    parts = {name: {path.stem for path in (root / folder).iterdir()} for name, folder in PACKAGES.items()}
    texts: dict[str, list[str]] = defaultdict(list)
    for folder in ("src", "tests", "bench", "tools", "examples", "samples"):
        for path, tree in trees_below(root / folder):
            texts[path.relative_to(root).as_posix()] += strings_in(tree)
    for path in (root / "pyproject.toml", *root.glob("*.md"), *(root / "docs").rglob("*.md")):
        texts[path.relative_to(root).as_posix()].append(path.read_text())
    found: dict[str, set[str]] = defaultdict(set)
    for file, contents in texts.items():
        for name in (name for text in contents for name in dotted_names(text)):
            package, part, *rest = name.split(".")
            if part in parts[package] and name not in LOGGERS and not (rest and rest[-1].startswith(PLANTED)):
                found[name].add(file)
    return found


def logger_names(tree: ast.AST) -> Iterator[str]:
    """Return our loggers' names that are written out; the others follow their modules by `__name__`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="getLogger"), args=[ast.Constant(value=str(name))]) if (
                name.startswith("forewarn")
            ):
                yield name
            case _:
                pass


def dotted_names(text: str) -> Iterator[str]:
    """Return module and attribute names in a text, and what its import statements import."""
    for name in MODULE_NAME.findall(text):
        yield name.replace(":", ".")
    for name in SHORT_NAME.findall(text):
        yield f"forewarn.{name}"
    for module, imported in IMPORT_STATEMENT.findall(text):
        yield from (f"{module}.{name}" for name in imported.split(", "))


def exists(dotted: str) -> bool:
    """Import the longest prefix that is a module, and look the rest up in it."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: object = import_module(".".join(parts[:count]))
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in PACKAGES:
                raise
            continue
        for attribute in parts[count:]:
            if not hasattr(value, attribute):
                return False
            value = getattr(value, attribute)
        return True
    return False


def test_modules_that_are_named_in_strings_exist(root: Path) -> None:
    named = named_modules(root)
    assert {"forewarn.cli.main", "forewarn.testing.plugin"} <= set(named)
    assert {name: sorted(files) for name, files in named.items() if not exists(name)} == {}


def test_loggers_are_named_after_modules(root: Path) -> None:
    loggers = {name for _, tree in trees_below(root / "src") for name in logger_names(tree)}
    assert loggers == set(LOGGERS), "others are named by `__name__`"


def test_names_of_loggers_are_found() -> None:
    tree = ast.parse('getLogger("a"); logging.getLogger("forewarn.desk"); logging.getLogger("asyncio")')
    assert list(logger_names(tree)) == ["forewarn.desk"]


def test_missing_modules_are_found() -> None:
    missing = "forewarn" + ".core.desk"
    assert exists("forewarn.core.event")
    assert exists("forewarn.core.event.Event")
    assert not exists(missing)
    assert list(dotted_names(f"python -m {missing}")) == [missing]
    assert list(dotted_names(f"see `{missing.removeprefix('forewarn.')}`")) == [missing]
    assert list(dotted_names("from forewarn" + ".core.desk import a, b")) == [missing, f"{missing}.a", f"{missing}.b"]
