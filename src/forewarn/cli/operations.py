"""`forewarn vm restart|redeploy|delete|evict|fail`: what owners do to their VMs, and what befalls them."""

from typing import Annotated

import typer

from forewarn.api import v1
from forewarn.cli.exits import Exit, Stop
from forewarn.cli.making import show_made
from forewarn.cli.names import VmName, VmNames, complete_hosts
from forewarn.cli.options import Key, Wait, Why, choice
from forewarn.cli.output import say
from forewarn.cli.reaching import Asked, asks_service
from forewarn.cli.times import read_duration
from forewarn.core.event import EventType


@asks_service
def restart(asked: Asked, vm: VmName, why: Why = "", key: Key = None, wait: Wait = False) -> None:
    """Restart a VM for its owner: a Reboot whose source is User.

    Example: forewarn vm restart web-0 --wait
    """
    show_made(asked, asked.api.restart(v1.Operate(vm=vm, why=why), key=key), wait=wait)


@asks_service
def redeploy(asked: Asked, vm: VmName, why: Why = "", key: Key = None, wait: Wait = False) -> None:
    """Move a VM to another host for its owner: a Redeploy by User.

    Example: forewarn vm redeploy web-0
    """
    show_made(asked, asked.api.redeploy(v1.Operate(vm=vm, why=why), key=key), wait=wait)


@asks_service
def delete(asked: Asked, vm: VmName, why: Why = "", key: Key = None, wait: Wait = False) -> None:
    """Delete a VM for its owner. If it has a terminate notice, with a Terminate whose source is User, else at once.

    Example: forewarn vm delete web-0 --why "no longer needed"
    """
    scheduled = asked.api.delete(v1.Operate(vm=vm, why=why), key=key)
    show_made(asked, scheduled, wait=wait)
    if not scheduled.made:
        say(f"VM {vm} is deleted at once: it has no terminate notice.")


@asks_service
def evict(
    asked: Asked,
    vm: VmName,
    notice: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="After this time: 30s.")] = None,
    why: Why = "",
    key: Key = None,
    wait: Wait = False,
) -> None:
    """Take a low-priority VM away: a Preempt. So does a platform that needs the capacity.

    Example: forewarn vm evict batch_3
    """
    ask = v1.Evict(vm=vm, notice=read_duration(notice, "--in"), why=why)
    show_made(asked, asked.api.evict(ask, key=key), wait=wait)


@asks_service
def fail(
    asked: Asked,
    vms: VmNames = None,
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="All VMs of this host.", autocompletion=complete_hosts)
    ] = None,
    type_: Annotated[
        EventType | None,
        choice(EventType, "--type", metavar="TYPE", help_="What happens to them: Redeploy (the default) or Reboot."),
    ] = None,
    predicted: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Not now: expected in this time, 3d; a Redeploy is announced."),
    ] = None,
    why: Why = "",
    key: Key = None,
    wait: Wait = False,
) -> None:
    """Let the hardware under VMs fail. Their events start at once, without notice.

    Examples: forewarn vm fail web-0; forewarn vm fail --host hv-1 --predicted 3d
    """
    if bool(vms) is (host is not None):
        raise Stop(Exit.USAGE, "say what fails: VM… or --host")
    if predicted is None:
        ask = v1.Fail(vms=vms or (), host=host, type=type_ or EventType.REDEPLOY, why=why)
        show_made(asked, asked.api.fail(ask, key=key), wait=wait)
        return
    if type_ is not None:
        raise Stop(Exit.USAGE, "--predicted and --type: a predicted failure is always a Redeploy")
    ahead = read_duration(predicted, "--predicted") or ""
    expected = v1.PredictFailure(ahead=ahead, vms=vms or (), host=host, why=why)
    show_made(asked, asked.api.predict_failure(expected, key=key), wait=wait)


ALL = {"restart": restart, "redeploy": redeploy, "delete": delete, "evict": evict, "fail": fail}
