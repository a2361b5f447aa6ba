"""Two different documents never have the same ETag, whatever happens in a scope."""

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from forewarn.core.scope import Scope
from forewarn.wire.document import encode_document, etag
from forewarn.wire.protocol import NEWEST_VERSION, PREVIEW_VERSION
from tests.core.scope_state_machine import ScopeStateMachine
from tests.support.examples import examples


def render_documents(scope: Scope) -> Iterable[tuple[str, bytes]]:
    """Return the documents of the oldest and the newest version, each with its ETag."""
    return [(etag(scope, version), encode_document(scope, version)) for version in (PREVIEW_VERSION, NEWEST_VERSION)]


class DocumentStateMachine(ScopeStateMachine):
    """Random commands on scopes, with checks of their documents."""

    documents = staticmethod(render_documents)


@pytest.mark.timeout(900)  # shrinking a failure takes minutes
def test_etag_identifies_one_document_in_any_random_command_sequence() -> None:
    run_state_machine_as_test(
        DocumentStateMachine, settings=settings(max_examples=examples(200), stateful_step_count=50, print_blob=True)
    )


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_etag_identifies_one_document_in_any_long_random_command_sequence() -> None:
    run_state_machine_as_test(
        DocumentStateMachine,
        settings=settings(
            max_examples=2000,
            stateful_step_count=100,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
