"""The pytest plug-in, in runs of pytest of its own."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

import forewarn.testing.service  # noqa: F401 - loaded once, and not anew in each run inside of this process
from tests.support.inner_pytest import WITHOUT_OTHERS

pytest_plugins = ["pytester"]

SERVER_PARTS = ("h11", "httptools", "litestar", "prometheus_client", "uvloop")

PLAIN = (*WITHOUT_OTHERS, "-p", "no:cacheprovider", "-q", "--assert=plain")
"""Assertions as they are: pytest would else compile the whole of Forewarn anew in each of these runs."""

QUIET = (*PLAIN, "-p", "no:asyncio")


@pytest.fixture(autouse=True)
def strict(pytester: pytest.Pytester) -> None:
    """Whatever a user has set: no warning, no unknown marker."""
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = --strict-markers\n")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(*QUIET, *arguments)


class TestFixtures:
    def test_service_is_there_and_is_the_tests_own(self, pytester: pytest.Pytester) -> None:
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

    def test_both_fixtures_are_of_one_service(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            def test_one(forewarn_vm, forewarn):
                assert forewarn.vm(forewarn_vm).url == forewarn_vm.url
            """
        )
        run(pytester).assert_outcomes(passed=1)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ("vm='web-9'", "@pytest.mark.forewarn(vm='web-9'): name one VM of the fleet; it has a/web-0, b/web-0"),
            ("vm='web-0'", "@pytest.mark.forewarn(vm='web-0'): name one VM of the fleet; it has a/web-0, b/web-0"),
            ("fleet={'scopes': []}", "the fixture forewarn_vm needs a fleet with a VM: this one has none"),
        ],
        ids=["there is none", "there are two", "there are none at all"],
    )
    def test_vm_that_cannot_be_is_told_in_a_sentence(self, pytester: pytest.Pytester, options: str, said: str) -> None:
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
        result.stdout.fnmatch_lines([said])
        result.stdout.no_fnmatch_line("*plugin.py*")

    def test_are_listed_with_what_they_are(self, pytester: pytest.Pytester) -> None:
        result = run(pytester, "--fixtures")
        result.stdout.fnmatch_lines(["forewarn -- *", "*A service of this test's own*", "forewarn_vm -- *"])
        run(pytester, "--markers").stdout.fnmatch_lines(["@pytest.mark.forewarn(fleet, *, vm): *"])


class TestMarker:
    def test_says_what_the_service_is_like(self, pytester: pytest.Pytester) -> None:
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

    def test_what_is_said_closer_to_the_test_counts(self, pytester: pytest.Pytester) -> None:
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

    def test_path_is_relative_to_the_file_of_the_test(self, pytester: pytest.Pytester) -> None:
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
        ("marker", "told"),
        [
            ("flet=['a-0']", "takes fleet, manual_time, speed, start, settings, vm, by name; not flet"),
            ("['a-0']", "by name; not a value without a name"),
            (
                "fleet=Path('none.toml')",
                "the fixture forewarn cannot start: */none.toml: cannot be read: No such file*",
            ),
            ("fleet='[[scopes]]'", "the fixture forewarn cannot start: fleet:1: *"),
            ("settings={'sped': 3}", "the fixture forewarn cannot start: settings: there is no setting sped*"),
            ("settings={'speed': -3}", "the fixture forewarn cannot start: --speed: speed takes *"),
            ("start=datetime(2030, 1, 1)", "the fixture forewarn cannot start: * has no time zone*"),
        ],
    )
    def test_mistakes_are_told_in_a_line(self, pytester: pytest.Pytester, marker: str, told: str) -> None:
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
        result.stdout.fnmatch_lines([f"*{told}"])
        result.stdout.no_fnmatch_line("*Traceback*")
        result.stdout.no_fnmatch_line("*plugin.py*")


class TestFailing:
    def test_failed_test_tells_what_its_service_has_seen(self, pytester: pytest.Pytester) -> None:
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
                "*Forewarn: what happened*",
                "* db-0 db-0: event * scheduled by admin (new kernel)",
                "* db-0 db-0: event * approved by vm:db-0",
                "*Forewarn: what VMs asked*",
                "* db-0/db-0 GET /metadata/scheduledevents?api-version=2020-07-01: answered 200 (3 times)",
                "* db-0/db-0 POST /metadata/scheduledevents?api-version=2020-07-01 approving *: answered 200",
            ],
            consecutive=False,
        )

    def test_report_shows_the_line_that_waited_and_none_of_ours(self, pytester: pytest.Pytester) -> None:
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
            ["E *.WaitTimeout: *", "E *.InvalidEventType: there is no event type 'reboot': *"], consecutive=False
        )
        result.stdout.no_fnmatch_line("*request_queries.py*")
        result.stdout.no_fnmatch_line("*making.py*")

    def test_failed_fixture_tells_it_too(self, pytester: pytest.Pytester) -> None:
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
                "*Forewarn: what VMs asked*",
                "* db-0/db-0 GET /metadata/scheduledevents?api-version=2020-07-01: answered 200",
            ]
        )

    def test_newest_lines_are_told_of_many(self, pytester: pytest.Pytester) -> None:
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
            ["*Forewarn: what happened*", "… 70 lines before these", "*Forewarn: what VMs asked*", "nothing"]
        )

    def test_service_that_was_stopped_has_nothing_more_to_tell(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile(
            """
            def test_handler(forewarn):
                forewarn.stop()
                forewarn.schedule("Reboot", "web-0")
            """
        )
        result = run(pytester)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            ["*NotRunning: this service is not running*", "the service cannot be asked any more: *"]
        )


@pytest.mark.process
def test_many_workers_at_once_also_with_asyncio(pytester: pytest.Pytester) -> None:
    """The service has a loop of its own: it goes on though a helper blocks the loop of the test."""
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
    """A plain `pip install forewarn` has the plug-in too: it must be in nobody's way."""

    @pytest.fixture
    def blocked(self, pytester: pytest.Pytester) -> dict[str, str]:
        """The environment of a Python that has none of the server's packages."""
        block = f"import sys; sys.modules.update(dict.fromkeys({SERVER_PARTS!r}))\n"
        (pytester.mkdir("python") / "sitecustomize.py").write_text(block)
        return {**os.environ, "PYTHONPATH": str(pytester.path / "python")}

    @pytest.mark.process
    def test_other_tests_run_and_the_fixture_says_what_is_missing(
        self, pytester: pytest.Pytester, blocked: dict[str, str]
    ) -> None:
        pytester.makepyfile("def test_other(): pass\ndef test_service(forewarn): pass\n")
        told = output_of(["-m", "pytest", *QUIET], pytester.path, blocked)
        assert "1 passed, 1 error" in told
        assert "the fixture forewarn needs " in told
        assert "pip install 'forewarn[testing]'" in told
        assert "Traceback" not in told

    @pytest.mark.process
    def test_import_says_what_to_install(self, pytester: pytest.Pytester, blocked: dict[str, str]) -> None:
        told = output_of(["-c", "from forewarn.testing import Forewarn"], pytester.path, blocked)
        assert re.search(r"forewarn\.testing\.Forewarn needs \w+: pip install 'forewarn\[testing\]'$", told.strip())

    @pytest.mark.process
    def test_name_can_be_imported_where_it_is_not_needed(
        self, pytester: pytest.Pytester, blocked: dict[str, str]
    ) -> None:
        program = "import forewarn.testing, forewarn.testing.plugin\nfrom forewarn.testing import NotSeen"
        assert output_of(["-c", program], pytester.path, blocked) == ""


@pytest.mark.process
def test_nothing_of_the_server_is_imported_before_it_is_asked_for(tmp_path: Path) -> None:
    program = f"import sys, forewarn.testing.plugin; print([name for name in {SERVER_PARTS!r} if name in sys.modules])"
    assert output_of(["-c", program], tmp_path, dict(os.environ)) == "[]\n"
    program = "import sys, forewarn.testing.plugin; print([name for name in sys.modules if 'forewarn' in name])"
    told = output_of(["-c", program], tmp_path, dict(os.environ))
    assert told == "['forewarn', 'forewarn.testing', 'forewarn.testing.plugin']\n"


def output_of(arguments: Sequence[str], directory: Path, environ: dict[str, str]) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=directory, env=environ, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240
    )
    return done.stdout.decode()
