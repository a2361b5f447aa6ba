"""The line of a key, for everything that TOML allows."""

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.settings.key_positions import KeyPositions

FILE = """\
# a comment with "quotes" and [brackets]
name = "web"  # not a = "key"
"quoted key" = 1
dotted.inner = { a = 1, "b c" = [1, 2] }
text = '''
[no.table]
no = "key"
'''
escaped = TRICKY
many = [
  "one", # one, two ]
  { name = "two" },
  [
    3, 4,
  ],
]
at = 2026-03-02 10:00:00

[table . "sub.table"]
key=true
[[scopes]]
name = "a"
[[scopes.vms]]
name = "a-0"
[[scopes.vms]]

name = "a-1"
[scopes.tags]
owner = "x"
[[scopes]]
vms = []
""".replace("TRICKY", '"""a \\""" ] = \n# no comment"""""')

LINES = {
    "name": 2,
    "quoted key": 3,
    "dotted": 4,
    "dotted.inner.a": 4,
    "dotted.inner.b c[1]": 4,
    "text": 5,
    "escaped": 9,
    "many": 11,
    "many[0]": 12,
    "many[1].name": 13,
    "many[2]": 14,
    "many[2][1]": 15,
    "at": 18,
    "table": 20,
    "table.sub.table.key": 21,
    "scopes[0]": 22,
    "scopes[0].name": 23,
    "scopes[0].vms[0].name": 25,
    "scopes[0].vms[1]": 26,
    "scopes[0].vms[1].name": 28,
    "scopes[0].tags.owner": 30,
    "scopes[1].vms": 32,
}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_key_has_the_line_on_which_it_is_written(line_end: str) -> None:
    lines = KeyPositions(FILE.replace("\n", line_end))
    assert {key: lines.find(key) for key in LINES} == LINES


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("scopes[0].kind", 22),
        ("scopes[1].vms[7].name", 32),
        ("scopes[0].tags.a[0].b", 29),
        ("nothing", None),
        ("", None),
    ],
)
def test_missing_key_has_the_line_of_its_table(key: str, line: int | None) -> None:
    assert KeyPositions(FILE).find(key) == line


@pytest.mark.timeout(10)
@pytest.mark.parametrize("key", ["table.a[b", "table.[", "table.a]b.c", "table.a[0]b"])
def test_missing_key_with_a_bracket_has_the_line_of_its_table(key: str) -> None:
    assert KeyPositions(FILE).find(key) == 20


WRITTEN = st.recursive(
    st.sampled_from([
        "1", "-2.5e3", "true", "inf", '"a # ]"', "'[\"'", '"\\""', '""', "'''\n''\n'''", '"""\n""\\"\n"""', "07:32:00",
        "2026-03-02T10:00:00Z", "2026-03-02 10:00:00",
    ]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[\n" + ",  # a, b ]\n".join(items) + "\n]"),
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}{',' if items else ''}]"),
        st.lists(inner, max_size=3).map(
            lambda items: f"{{ {', '.join(f'k{n} = {item}' for n, item in enumerate(items))} }}"
        ),
    ),
    max_leaves=12,
)  # fmt: skip


def paths(value: object, key: str) -> Iterator[str]:
    yield key
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths(inner, f"{key}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from paths(inner, f"{key}[{number}]")


@given(st.lists(WRITTEN, min_size=1, max_size=4))
def test_every_key_of_any_file_is_found(values: list[str]) -> None:
    text = "\n".join(f"key{n} = {value}" for n, value in enumerate(values))
    content = tomllib.loads(text)
    first_lines = [text[: text.index(f"key{n} = ")].count("\n") + 1 for n in range(len(values))]
    lines = KeyPositions(text)
    assert [lines.find(key) for key in content] == first_lines
    for number, key in enumerate(content):
        last = first_lines[number] + values[number].count("\n")
        for path in paths(content[key], key):
            line = lines.find(path)
            assert path in lines._lines
            assert line is not None
            assert first_lines[number] <= line <= last
