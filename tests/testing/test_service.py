"""Tests of the in-test service: start, fleets, time, settings, and stop without leftovers."""

import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from forewarn.api import v1
from forewarn.api.errors import NotFound, RequestRefused
from forewarn.api.local_service import ephemeral_root, ephemeral_services
from forewarn.settings.errors import InvalidSetting, SettingNotFound
from forewarn.settings.file_reader import FileError
from forewarn.testing import AlreadyStarted, Forewarn, InvalidStart, NotRunning, VmEndpointNotFound
from forewarn.testing.vm import EVENTS_PATH, Vm

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)

FLEET = """
[[scopes]]
name = "shop"
kind = "availability-set"
update_domains = 2
vms = [{ name = "till-{n}", count = 3 }]
"""


def names(forewarn: Forewarn) -> list[str]:
    return [vm.full_name for vm in forewarn.vms]


def _connected(vm: Vm) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(vm.url).netloc, timeout=60)


class TestStarting:
    def test_api_and_guest_endpoint_respond_after_the_start(self) -> None:
        with Forewarn() as forewarn:
            assert forewarn.api.health().status == "ok"
            assert forewarn.vm("web-0").document().events == ()

    def test_api_needs_the_token_which_has_the_role_admin(self) -> None:
        with Forewarn(["a-0"]) as forewarn:
            assert forewarn.api.me().role == "admin"
            where = urlsplit(forewarn.url)
            connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
            connection.request("GET", "/v1/vms")
            assert connection.getresponse().status == 401
            connection.close()

    def test_several_services_run_in_parallel_and_are_isolated(self) -> None:
        with Forewarn(["a-0"]) as one, Forewarn(["b-0"]) as other:
            event = one.schedule("Reboot", "a-0")
            assert (names(one), names(other)) == (["a-0/a-0"], ["b-0/b-0"])
            assert (one.events, other.events) == ([event], [])
            with pytest.raises(NotFound):
                other.api.event(event.id)
            with pytest.raises(RequestRefused, match="token"):
                type(one.api)(other.url, one.token).me()
            one.advance("1d")
            assert one.now - other.now >= timedelta(hours=23)

    def test_each_service_starts_without_earlier_events(self) -> None:
        for _ in range(3):
            with Forewarn(["a-0"]) as forewarn:
                assert forewarn.events == []
                forewarn.schedule("Reboot", "a-0")

    def test_second_start_is_refused(self) -> None:
        with Forewarn(["a-0"]) as forewarn, pytest.raises(AlreadyStarted):
            forewarn.start()

    def test_environment_variables_have_no_effect_on_settings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FOREWARN_SPEED", "100")
        monkeypatch.setenv("FOREWARN_OPERATOR", "192.0.2.1:80")
        with Forewarn(["a-0"]) as forewarn:
            assert forewarn.schedule("Reboot", "a-0", notice="15m").not_before == forewarn.now + timedelta(minutes=15)

    def test_command_line_does_not_discover_it(self) -> None:
        with Forewarn(["a-0"]) as forewarn:
            found = [directory for directory, _ in ephemeral_services(ephemeral_root(os.environ))]
            assert forewarn.directory not in found

    @pytest.mark.process
    def test_command_line_uses_it_with_its_environment(self) -> None:
        with Forewarn(["a-0"]) as forewarn:
            environ = {**os.environ, **forewarn.environment}
            command = [sys.executable, "-m", "forewarn.cli", "vm", "list", "-o", "json"]
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=120)
            assert forewarn.vm().url in done.stdout


class TestEnding:
    def test_stop_leaves_no_thread_directory_or_listener(self) -> None:
        threads = set(threading.enumerate())
        with Forewarn(["a-0"]) as forewarn:
            directory, url = forewarn.directory, forewarn.vm().url
            assert directory.is_dir()
        assert set(threading.enumerate()) <= threads
        assert not directory.parent.parent.exists()
        with pytest.raises(ConnectionRefusedError):
            http.client.HTTPConnection(urlsplit(url).netloc, timeout=60).connect()

    def test_open_guest_connections_do_not_delay_the_stop(self) -> None:
        with Forewarn(["a-0"]) as forewarn:
            connection = http.client.HTTPConnection(urlsplit(forewarn.vm().url).netloc, timeout=60)
            connection.connect()
        assert connection.sock.recv(1) == b""
        connection.close()

    def test_stop_answers_a_hanging_request(self) -> None:
        with Forewarn(["a-0"]) as forewarn, closing(_connected(forewarn.vm())) as connection:
            forewarn.fault("hang")
            connection.request("GET", EVENTS_PATH, headers={"Metadata": "true"})
            (asked,) = forewarn.wait_until_asked("a-0", timeout=60)
            assert asked.status is None
            forewarn.stop()
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())) == (200, {"DocumentIncarnation": 1, "Events": []})

    def test_stop_answers_a_long_poll(self) -> None:
        with Forewarn(["a-0"]) as forewarn, closing(_connected(forewarn.vm())) as connection:
            connection.request("GET", EVENTS_PATH, headers={"Metadata": "true"})
            with connection.getresponse() as first:
                first.read()
            seen = {"Metadata": "true", "If-None-Match": first.headers["ETag"]}
            connection.request("GET", f"{EVENTS_PATH}&wait=60", headers=seen)
            *_, asked = forewarn.wait_until_asked("a-0", times=2, timeout=60)
            assert asked.status is None
            forewarn.stop()
            assert connection.getresponse().status == 304

    def test_use_after_the_stop_raises_not_running(self) -> None:
        with Forewarn(["a-0"]) as forewarn:
            pass
        for use in (lambda: forewarn.url, lambda: forewarn.api, lambda: forewarn.now, lambda: forewarn.vm("a-0")):
            with pytest.raises(NotRunning, match="with Forewarn"):
                use()
        assert repr(forewarn) == "<Forewarn, not running>"

    def test_request_log_is_available_after_the_stop(self) -> None:
        with Forewarn(["a-0"]) as forewarn:
            event = forewarn.schedule("Reboot", "a-0")
            vm = forewarn.vm()
            vm.approve(event)
        assert forewarn.approvals(vm) == forewarn.approvals("a-0") == [event.id]

    def test_second_stop_does_nothing(self) -> None:
        forewarn = Forewarn(["a-0"]).start()
        forewarn.stop()
        forewarn.stop()

    def test_stop_raises_an_error_of_the_service(self) -> None:
        forewarn = Forewarn(["a-0"]).start()
        background, running = forewarn._background, forewarn._running
        assert background is not None
        assert running is not None

        async def fail() -> None:
            raise ZeroDivisionError("a bug")

        async def begin() -> None:
            running.fleet.start_task(fail(), name="a bug")

        asyncio.run_coroutine_threadsafe(begin(), background._loop).result(60)
        background._thread.join(60)
        with pytest.raises(ZeroDivisionError, match="a bug"):
            forewarn.stop()


class TestFleets:
    def test_default_is_the_demonstration_fleet(self) -> None:
        with Forewarn() as forewarn:
            assert {"web/web-0", "db-0/db-0", "batch/batch_0", "shop/FrontEnd_IN_0"} <= set(names(forewarn))
            assert forewarn.vm().full_name == "db-0/db-0"

    def test_text_of_a_fleet_file(self) -> None:
        with Forewarn(FLEET) as forewarn:
            assert names(forewarn) == ["shop/till-0", "shop/till-1", "shop/till-2"]

    def test_path_of_a_fleet_file(self, tmp_path: Path) -> None:
        (tmp_path / "fleet.toml").write_text(FLEET)
        with Forewarn(tmp_path / "fleet.toml") as forewarn:
            assert names(forewarn) == ["shop/till-0", "shop/till-1", "shop/till-2"]

    def test_content_of_a_fleet_file(self) -> None:
        scope = {"name": "one", "kind": "standalone", "vms": [{"name": "solo"}]}
        with Forewarn({"scopes": [scope]}) as forewarn:
            assert names(forewarn) == ["one/solo"]

    def test_names_of_vms(self) -> None:
        with Forewarn(["web/web-0", "web/web-1", "db-0"]) as forewarn:
            assert names(forewarn) == ["db-0/db-0", "web/web-0", "web/web-1"]
            assert [forewarn.api.vm(name).update_domain for name in ("web-0", "web-1")] == [0, 1]
            assert forewarn.api.scope("web").kind == "availability-set"

    def test_first_vm_is_the_first_in_the_fleet_file(self) -> None:
        with Forewarn(["web/web-1", "db-0"]) as forewarn:
            assert forewarn.vm().full_name == "web/web-1"

    def test_added_vm_gets_an_endpoint(self) -> None:
        with Forewarn(["a-0"]) as forewarn:
            forewarn.api.add_vm(v1.AddVm(name="b-0"))
            assert forewarn.vm("b-0").document().events == ()

    def test_error_names_the_unknown_vm(self) -> None:
        with Forewarn(["a-0"]) as forewarn, pytest.raises(NotFound, match="b-0"):
            forewarn.vm("b-0")

    def test_vm_without_an_endpoint_raises_an_error(self) -> None:
        with (
            Forewarn(["a-0"], settings={"listen": "none"}) as forewarn,
            pytest.raises(VmEndpointNotFound, match="a-0/a-0"),
        ):
            forewarn.vm()

    def test_fleet_without_vms(self) -> None:
        with Forewarn({"scopes": []}) as forewarn:
            assert forewarn.vms == ()
            with pytest.raises(LookupError, match="no VM"):
                forewarn.vm()

    @pytest.mark.parametrize(
        ("fleet", "complaint"),
        [
            ("[[scopes]", "invalid TOML"),
            ('[[scopes]]\nname = "x"\nkind = "cloud"\n', r"scopes\[0\].kind"),
            ({"scopes": [{"name": "x"}]}, "kind"),
            (["web/web-0", "web/web-0"], "web/web-0 is already defined"),
            (["not a name"], "scopes"),
            (Path("/nowhere/fleet.toml"), "/nowhere/fleet.toml: cannot be read"),
        ],
        ids=["not TOML", "wrong kind", "missing key", "duplicate name", "invalid name", "missing file"],
    )
    def test_start_raises_the_error_of_an_invalid_fleet(self, fleet: object, complaint: str) -> None:
        threads = set(threading.enumerate())
        with pytest.raises(FileError, match=complaint):
            Forewarn(fleet).start()  # type: ignore[arg-type]  # the table has all kinds
        assert set(threading.enumerate()) <= threads

    def test_stop_after_a_failed_start_does_nothing(self) -> None:
        forewarn = Forewarn("[[scopes]")
        with pytest.raises(FileError):
            forewarn.start()
        forewarn.stop()


class TestTime:
    def test_manual_clock_moves_only_by_advance(self) -> None:
        with Forewarn(["a-0"]) as forewarn:
            before = forewarn.now
            assert forewarn.api.clock().now == before
            assert forewarn.advance("15m") == forewarn.now == before + timedelta(minutes=15)

    @pytest.mark.parametrize("by", ["90s", timedelta(seconds=90), 90, 90.0])
    def test_duration_can_be_text_timedelta_or_seconds(self, by: str | timedelta | float) -> None:
        with Forewarn(["a-0"], start=NOON) as forewarn:
            assert forewarn.advance(by) == NOON + timedelta(seconds=90)

    def test_clock_starts_at_the_given_time(self) -> None:
        elsewhere = NOON.astimezone(timezone(timedelta(hours=2)))
        with Forewarn(["a-0"], start=elsewhere) as forewarn:
            assert forewarn.now == NOON
            assert forewarn.schedule("Reboot", "a-0", notice="15m").not_before == NOON + timedelta(minutes=15)

    def test_clock_can_start_in_the_past(self) -> None:
        past = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
        with Forewarn(["a-0"], start=past) as forewarn:
            event = forewarn.schedule("Reboot", "a-0", notice="15m")
            forewarn.advance("20m")
            assert event.state == "completed"
            assert forewarn.now == past + timedelta(minutes=20)

    def test_start_needs_a_time_zone_and_manual_time(self) -> None:
        with pytest.raises(InvalidStart, match="tzinfo=UTC"):
            Forewarn(start=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point
        with pytest.raises(InvalidStart, match="manual clock"):
            Forewarn(start=NOON, manual_time=False)

    def test_system_clock_cannot_be_advanced_but_speed_shortens_notices(self) -> None:
        with Forewarn(["a-0"], manual_time=False, speed=1000) as forewarn:
            with pytest.raises(RequestRefused, match="real"):
                forewarn.advance("1m")
            event = forewarn.schedule("Reboot", "a-0", notice="15m")
            forewarn.wait_for_state(event, "completed")


class TestSettings:
    def test_settings_of_forewarn_up_are_accepted(self) -> None:
        with Forewarn(["a-0"], start=NOON, settings={"simulated.reboot": "5s"}) as forewarn:
            event = forewarn.schedule("Reboot", "a-0", notice="1m")
            forewarn.advance("64s")
            assert event.state == "Started"
            forewarn.advance("1s")
            assert event.state == "completed"

    def test_error_names_the_unknown_setting(self) -> None:
        with pytest.raises(SettingNotFound, match=r"simulated\.reboots"):
            Forewarn(settings={"simulated.reboots": "5s"})

    def test_error_names_the_setting_with_the_invalid_value(self) -> None:
        with pytest.raises(InvalidSetting, match="simulated-reboot"):
            Forewarn(settings={"simulated.reboot": "soon"})
