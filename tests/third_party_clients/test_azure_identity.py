"""azure-identity asks for a token of a managed identity, which no VM of Forewarn has."""

from typing import Any

import pytest
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import CredentialUnavailableError, ManagedIdentityCredential

from tests.support.emulator import Vm


class CountingTransport(RequestsTransport):  # type: ignore[misc]  # it has no types
    """Counts requests and pauses before retries; the pauses are left out."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: list[int] = []
        self.pauses: list[float] = []

    def send(self, request: Any, **options: Any) -> Any:
        """Send a request and record its status."""
        response = super().send(request, **options)
        self.statuses.append(response.status_code)
        return response

    def sleep(self, duration: float) -> None:
        """Record a pause."""
        self.pauses.append(duration)


def test_credential_is_unavailable_without_retries(vm: Vm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", vm.url)
    for name in ("IDENTITY_ENDPOINT", "IMDS_ENDPOINT", "MSI_ENDPOINT", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    transport = CountingTransport()
    with ManagedIdentityCredential(transport=transport) as credential, pytest.raises(CredentialUnavailableError):
        credential.get_token("https://management.azure.com/.default")
    assert transport.pauses == []
    assert set(transport.statuses) == {400}
