"""Records and journal lines as messages of a cell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.store.nats.message import (
    CHANGE,
    FORMAT,
    FORMAT_HEADER,
    LINE_BYTES_PER_MESSAGE,
    LINES_PER_MESSAGE,
    CellSubjects,
    StoredMessage,
    decode_token,
    encode_token,
    journal_messages,
    read_lines,
    record_message,
)
from forewarn.store.port import Deleted, Record, RecordKey, RecordKind, StoreCorrupt, StoreTooNew
from tests.store.contract import WEB, entries, entry

SUBJECTS = CellSubjects("rack-1")


@given(st.text())
def test_any_id_is_one_token_and_comes_back(text: str) -> None:
    token = encode_token(text)
    assert token
    assert not set(token) & set(" .*>\r\n\t")
    assert decode_token(token) == text


@given(st.text(), st.text())
def test_different_ids_have_different_tokens(one: str, other: str) -> None:
    assert (encode_token(one) == encode_token(other)) == (one == other)


def test_subject_is_readable_and_names_its_record() -> None:
    key = RecordKey(RecordKind.SCOPE, "web-0.rack/1")
    assert SUBJECTS.of(key) == "$KV.rack-1.scope.web-0=2Erack=2F1"
    assert SUBJECTS.key_of(SUBJECTS.of(key)) == key


def test_id_that_does_not_fit_into_a_subject_is_refused() -> None:
    with pytest.raises(ValueError, match="too long for NATS"):
        SUBJECTS.of(RecordKey(RecordKind.SCOPE, "✓" * 500))


def test_record_message_comes_back_as_a_change() -> None:
    saved = record_message("s", b"value", change="c1", expected=7, lines_distance=2)
    stored = StoredMessage("s", 12, saved.headers, saved.data)
    assert (stored.to_change(WEB), stored.last_lines) == (Record(WEB, b"value", 12), 10)
    deleted = record_message("s", None, change="c2", expected=12, lines_distance=0)
    stored = StoredMessage("s", 13, deleted.headers, deleted.data)
    assert (stored.to_change(WEB), stored.last_lines) == (Deleted(WEB, 13), 0)


def test_unknown_format_is_refused() -> None:
    saved = record_message("s", b"value", change="c1", expected=0, lines_distance=0)
    newer = StoredMessage("s", 12, saved.headers | {FORMAT_HEADER: str(FORMAT + 1)}, b"value")
    with pytest.raises(StoreTooNew) as refusal:
        newer.to_change(WEB)
    assert (refusal.value.path, refusal.value.version, refusal.value.supported) == ("s", FORMAT + 1, FORMAT)


def test_lines_are_split_by_number_and_by_size() -> None:
    many = entries(2 * LINES_PER_MESSAGE + 1)
    large = [entry(n, why="x" * (LINE_BYTES_PER_MESSAGE // 2)) for n in range(1, 4)]
    for lines, count in ((many, 3), (large, 3), (entries(1), 1), ([], 0)):
        messages = list(journal_messages("J.c", WEB, lines, change="c1"))
        assert len(messages) == count
        assert {message.headers[CHANGE] for message in messages} <= {"c1"}
        stored = [StoredMessage("J.c", 1, message.headers, message.data) for message in messages]
        assert [line for message in stored for line in read_lines(message)[1]] == lines
        assert {read_lines(message)[0] for message in stored} <= {WEB}


@pytest.mark.parametrize("data", [b"", b"{}", b'["scope"]\n[]', b'["unknown","web"]\n[]', b'["scope","web"]\n[{}]'])
def test_damaged_lines_are_refused(data: bytes) -> None:
    with pytest.raises(StoreCorrupt, match="message 3 of J"):
        read_lines(StoredMessage("J.c", 3, {}, data))
