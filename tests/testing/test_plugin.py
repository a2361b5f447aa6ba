"""The pytest plugin, tested in separate runs of pytest."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

import forewarn.testing.service  # noqa: F401 - loaded once here, not again in each run inside this process
from tests.support.inner_pytest import WITHOUT_OTHERS

pytest_plugins = ["pytester"]

SERVER_PARTS = ("h11", "httptools", "litestar", "prometheus_client", "uvloop")

PLAIN = (*WITHOUT_OTHERS, "-p", "no:cacheprovider", "-q", "--assert=plain")
"""Without assertion rewriting: otherwise pytest would compile all of Forewarn again in each of these runs."""

QUIET = (*PLAIN, "-p", "no:asyncio")


@pytest.fixture(autouse=True)
def strict(pytester: pytest.Pytester) -> None:
    """Fail on warnings and unknown markers, as the strictest user configuration does."""
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*QUIET, *arguments)


class TestFixtures:
    def test_each_test_gets_its_own_service(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            import gc, threading, weakref

            import pytest

            seen, services = [], weakref.WeakSet()

            @pytest.mark.parametrize("number", range(3))
            def test_service(forewarn, forewarn_vm, number):
                assert forewarn.events == []
                assert forewarn_vm.full_name == "db-0/db-0"
                event = forewarn.schedule("Reboot", forewarn_vm, notice="15m")
                forewarn.advance("15m")
                assert event.state == "Started"
                assert forewarn.approvals(forewarn_vm) == []
                assert forewarn.url not in seen
                seen.append(forewarn.url)
                services.add(forewarn)

            def test_all_have_ended_and_are_forgotten():
                gc.collect()
                assert len(seen) == 3
                assert list(services) == []
                assert [thread.name for thread in threading.enumerate() if thread.name == "forewarn"] == []
            """
        )
        run(pytester).assert_outcomes(passed=4)

    def test_both_fixtures_use_the_same_service(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            def test_one(forewarn_vm, forewarn):
                assert forewarn.vm(forewarn_vm).url == forewarn_vm.url
            """
        )
        run(pytester).assert_outcomes(passed=1)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ("vm='web-9'", "@pytest.mark.forewarn(vm='web-9'): name one VM of the fleet; it has a/web-0, b/web-0"),
            ("vm='web-0'", "@pytest.mark.forewarn(vm='web-0'): name one VM of the fleet; it has a/web-0, b/web-0"),
            ("fleet={'scopes': []}", "the fixture forewarn_vm needs a fleet with at least one VM; this fleet is empty"),
        ],
        ids=["unknown name", "ambiguous name", "empty fleet"],
    )
    def test_invalid_vm_fails_with_one_sentence(self, pytester: pytest.Pytester, options: str, message: str) -> None:
        pytester.makepyfile(
            f"""
            import pytest

            pytestmark = pytest.mark.forewarn(fleet=["a/web-0", "b/web-0"])

            @pytest.mark.forewarn({options})
            def test_it(forewarn_vm):
                pass
            """
        )
        result = run(pytester)
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([message])
        result.stdout.no_fnmatch_line("*plugin.py*")

    def test_pytest_lists_fixtures_and_marker_with_descriptions(self, pytester: pytest.Pytester) -> None:
        result = run(pytester, "--fixtures")
        result.stdout.fnmatch_lines(["forewarn -- *", "*A service for this test alone*", "forewarn_vm -- *"])
        run(pytester, "--markers").stdout.fnmatch_lines(["@pytest.mark.forewarn(fleet, *, vm): *"])


class TestMarker:
    def test_marker_configures_the_service(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            from datetime import UTC, datetime, timedelta

            import pytest

            NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)

            @pytest.mark.forewarn(fleet=["web/web-0", "web/web-1"], vm="web-1", start=NOON)
            def test_marked(forewarn, forewarn_vm):
                assert forewarn.now == NOON
                assert forewarn_vm.full_name == "web/web-1"

            @pytest.mark.forewarn(manual_time=False, speed=60, settings={"simulated.reboot": "1m"})
            def test_in_a_hurry(forewarn, forewarn_vm):
                event = forewarn.schedule("Reboot", forewarn_vm, notice="1h")
                assert event.not_before - forewarn.now <= timedelta(seconds=61)
            """
        )
        run(pytester).assert_outcomes(passed=2)

    def test_marker_closest_to_the_test_wins(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            import pytest

            pytestmark = pytest.mark.forewarn(fleet=["a-0", "b-0"], vm="b-0")

            def test_of_the_module(forewarn_vm):
                assert forewarn_vm.name == "b-0"

            @pytest.mark.forewarn(vm="a-0")
            class TestClass:
                def test_of_the_class(self, forewarn_vm):
                    assert forewarn_vm.name == "a-0"

                @pytest.mark.forewarn(fleet=["c-0"], vm=None)
                def test_of_its_own(self, forewarn_vm):
                    assert forewarn_vm.name == "c-0"
            """
        )
        run(pytester).assert_outcomes(passed=3)

    def test_path_is_relative_to_the_test_file(self, pytester: pytest.Pytester) -> None:
        folder = pytester.mkdir("inside")
        (folder / "fleet.toml").write_text('[[scopes]]\nname = "x-0"\nkind = "standalone"\n')
        (folder / "test_path.py").write_text(
            textwrap.dedent(
                """
                from pathlib import Path
                import pytest

                @pytest.mark.forewarn(fleet=Path("fleet.toml"))
                def test_path(forewarn_vm):
                    assert forewarn_vm.name == "x-0"
                """
            )
        )
        run(pytester).assert_outcomes(passed=1)

    @pytest.mark.parametrize(
        ("marker", "message"),
        [
            ("flet=['a-0']", "takes fleet, manual_time, speed, start, settings, vm, by name; not flet"),
            ("['a-0']", "by name; not a value without a name"),
            (
                "fleet=Path('none.toml')",
                "the fixture forewarn cannot start: */none.toml: cannot be read: No such file*",
            ),
            ("fleet='[[scopes]]'", "the fixture forewarn cannot start: fleet:1: *"),
            (
                "settings={'sped': 3}",
                "the fixture forewarn cannot start: settings: sped: unknown key; did you mean speed*",
            ),
            ("settings={'speed': -3}", "the fixture forewarn cannot start: --speed: speed takes *"),
            ("start=datetime(2030, 1, 1)", "the fixture forewarn cannot start: * has no time zone*"),
        ],
    )
    def test_wrong_options_fail_with_one_line(self, pytester: pytest.Pytester, marker: str, message: str) -> None:
        pytester.makepyfile(
            f"""
            from datetime import datetime
            from pathlib import Path
            import pytest

            @pytest.mark.forewarn({marker})
            def test_marked(forewarn):
                pass
            """
        )
        result = run(pytester)
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([f"*{message}"])
        result.stdout.no_fnmatch_line("*Traceback*")
        result.stdout.no_fnmatch_line("*plugin.py*")


class TestFailing:
    def test_report_of_a_failed_test_shows_journal_and_requests(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            def test_handler(forewarn, forewarn_vm):
                event = forewarn.schedule("Reboot", forewarn_vm, why="new kernel")
                for _ in range(3):
                    forewarn_vm.document()
                forewarn_vm.approve(event)
                assert forewarn.approvals(forewarn_vm) == []

            def test_good(forewarn):
                pass
            """
        )
        result = run(pytester)
        result.assert_outcomes(passed=1, failed=1)
        result.stdout.fnmatch_lines(
            [
                "*Forewarn: journal*",
                "* db-0 db-0: event * scheduled by admin (new kernel)",
                "* db-0 db-0: event * approved by vm:db-0",
                "*Forewarn: requests of VMs*",
                "* db-0/db-0 GET /metadata/scheduledevents?api-version=2020-07-01: answered 200 (3 times)",
                "* db-0/db-0 POST /metadata/scheduledevents?api-version=2020-07-01 approving *: answered 200",
            ],
            consecutive=False,
        )

    def test_traceback_shows_the_waiting_line_but_no_line_of_forewarn(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            def test_handler(forewarn, forewarn_vm):
                forewarn.wait_until_asked(forewarn_vm, timeout=0)

            def test_approval(forewarn, forewarn_vm):
                forewarn.wait_for_approval("E", vm=forewarn_vm, timeout=0)

            def test_telling(forewarn):
                forewarn.wait_until_told("E", timeout=0)

            def test_anything(forewarn):
                forewarn.wait_until(lambda: False, timeout=0)

            def test_state(forewarn, forewarn_vm):
                forewarn.wait_for_state(forewarn.schedule("Reboot", forewarn_vm), "failed", timeout=0)

            def test_type(forewarn, forewarn_vm):
                forewarn.schedule("reboot", forewarn_vm)
            """
        )
        result = run(pytester)
        result.assert_outcomes(failed=6)
        result.stdout.fnmatch_lines(
            ["E *.WaitTimeout: *", "E *.InvalidEventType: unknown event type 'reboot': *"], consecutive=False
        )
        result.stdout.no_fnmatch_line("*request_queries.py*")
        result.stdout.no_fnmatch_line("*making.py*")

    def test_report_of_a_failed_fixture_shows_requests(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            import pytest

            @pytest.fixture
            def handler(forewarn, forewarn_vm):
                forewarn_vm.document()
                forewarn.wait_until_asked(forewarn_vm, times=2, timeout=0)

            def test_handler(handler):
                pass
            """
        )
        result = run(pytester)
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(
            [
                "*Forewarn: requests of VMs*",
                "* db-0/db-0 GET /metadata/scheduledevents?api-version=2020-07-01: answered 200",
            ]
        )

    def test_report_shows_only_the_newest_lines(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            def test_handler(forewarn, forewarn_vm):
                for _ in range(60):
                    forewarn.cancel(forewarn.schedule("Reboot", forewarn_vm))
                assert False
            """
        )
        result = run(pytester)
        result.stdout.fnmatch_lines(
            ["*Forewarn: journal*", "… 70 earlier lines omitted", "*Forewarn: requests of VMs*", "no requests"]
        )

    def test_report_has_no_journal_of_a_stopped_service(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            def test_handler(forewarn):
                forewarn.stop()
                forewarn.schedule("Reboot", "web-0")
            """
        )
        result = run(pytester)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*NotRunning: this service is not running*", "the journal could not be read: *"])


@pytest.mark.process
def test_fixtures_work_with_xdist_and_asyncio(pytester: pytest.Pytester) -> None:
    """The service has its own event loop, so it works even while a helper blocks the loop of the test."""
    pytester.makepyfile(
        test_many="""
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_service(forewarn, forewarn_vm, number):
            event = forewarn.schedule("Reboot", forewarn_vm, notice="15m")
            forewarn_vm.approve(event)
            forewarn.advance("1m")
            assert event.state == "completed"
            assert forewarn.approvals(forewarn_vm) == [event.id]
        """,
        test_asyncio="""
        import asyncio

        from forewarn.client import Appeared, AsyncScheduledEvents

        async def handler(url):
            async with AsyncScheduledEvents(url) as se:
                async for change in se.watch(mine=True):
                    if isinstance(change, Appeared):
                        await se.approve(change.event)
                        return

        async def test_handler(forewarn, forewarn_vm):
            handling = asyncio.create_task(handler(forewarn_vm.url))
            event = forewarn.schedule("Reboot", forewarn_vm)
            await asyncio.to_thread(forewarn.wait_for_approval, event)
            await handling
            assert event.state == "Started"
        """,
    )
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.runpytest_subprocess(*PLAIN, "-n", "2", timeout=240).assert_outcomes(passed=9)


class TestWithoutServer:
    """A plain installation contains the plugin too: it must not disturb other tests."""

    @pytest.fixture
    def blocked(self, pytester: pytest.Pytester) -> dict[str, str]:
        """The environment of a Python without the server's packages."""
        block = f"import sys; sys.modules.update(dict.fromkeys({SERVER_PARTS!r}))\n"
        (pytester.mkdir("python") / "sitecustomize.py").write_text(block)
        return {**os.environ, "PYTHONPATH": str(pytester.path / "python")}

    @pytest.mark.process
    def test_other_tests_run_and_the_fixture_names_the_missing_package(
        self, pytester: pytest.Pytester, blocked: dict[str, str]
    ) -> None:
        pytester.makepyfile("def test_other(): pass\ndef test_service(forewarn): pass\n")
        output = output_of(["-m", "pytest", *QUIET], pytester.path, blocked)
        assert "1 passed, 1 error" in output
        assert "the fixture forewarn needs " in output
        assert "install Forewarn with its extra [testing]" in output
        assert "Traceback" not in output

    @pytest.mark.process
    def test_import_error_says_what_to_install(self, pytester: pytest.Pytester, blocked: dict[str, str]) -> None:
        output = output_of(["-c", "from forewarn.testing import Forewarn"], pytester.path, blocked)
        assert re.search(
            r"forewarn\.testing\.Forewarn needs \w+: install Forewarn with its extra \[testing\]$", output.strip()
        )

    @pytest.mark.process
    def test_errors_can_be_imported_without_the_server(
        self, pytester: pytest.Pytester, blocked: dict[str, str]
    ) -> None:
        program = "import forewarn.testing, forewarn.testing.plugin\nfrom forewarn.testing import NotSeen"
        assert output_of(["-c", program], pytester.path, blocked) == ""


@pytest.mark.process
def test_plugin_does_not_import_the_server(tmp_path: Path) -> None:
    program = f"import sys, forewarn.testing.plugin; print([name for name in {SERVER_PARTS!r} if name in sys.modules])"
    assert output_of(["-c", program], tmp_path, dict(os.environ)) == "[]\n"
    program = "import sys, forewarn.testing.plugin; print([name for name in sys.modules if 'forewarn' in name])"
    output = output_of(["-c", program], tmp_path, dict(os.environ))
    assert output == "['forewarn', 'forewarn.testing', 'forewarn.testing.plugin']\n"


def output_of(arguments: Sequence[str], directory: Path, environ: dict[str, str]) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=directory, env=environ, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240
    )
    return done.stdout.decode()
