"""The operator API as an application: its routes, and that services share its handlers."""

from forewarn.operator.app import BODY_BYTES, litestar_app, preload
from forewarn.operator.error_responses import internal_error_response
from tests.operator.running_api import run_api


def test_handlers_are_put_together_once_for_all_services() -> None:
    preload()
    assert litestar_app() is litestar_app()


def test_every_path_is_of_the_api_or_of_the_service_itself() -> None:
    paths = {route.path.partition("{")[0] for route in litestar_app().routes}
    others = {path for path in paths if not path.startswith("/v1/")}
    assert {"/healthz", "/readyz", "/metrics", "/openapi.json"} <= others
    assert all(path.count("/") <= 2 for path in others)


def test_unexpected_error_has_a_handler() -> None:
    assert litestar_app().exception_handlers[Exception] is internal_error_response


async def test_body_over_the_limit_is_refused() -> None:
    async with run_api() as service:
        reply = await service.request("POST", "/v1/events", b" " * (BODY_BYTES + 1))
    assert (reply.status, reply.code) == (413, "body-too-large")


async def test_services_of_one_process_answer_each_for_itself() -> None:
    one_file, other_file = (f'[[scopes]]\nname = "{name}"\nkind = "standalone"\n' for name in ("one", "other"))
    async with run_api(fleet_file=one_file) as one, run_api(fleet_file=other_file) as other:
        names = [
            [vm["name"] for vm in (await service.request("GET", "/v1/vms")).json["vms"]] for service in (one, other)
        ]
    assert names == [["one"], ["other"]]
