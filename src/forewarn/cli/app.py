"""The program: its commands, and how it ends."""

import sys
from typing import Annotated

import typer

from forewarn import __version__
from forewarn.cli.exits import EXPECTED, INTERRUPTED, Exit, exit_code, sentence
from forewarn.cli.offers import Offers
from forewarn.cli.output import forget_stdout, have_streams, say, write

app = typer.Typer(
    name="forewarn",
    cls=Offers,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Tell every machine before you touch it: Azure's Scheduled Events as software that anyone can run.",
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        write(f"forewarn {__version__}")
        raise typer.Exit


@app.callback()
def forewarn(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before any command."""


def main() -> None:
    """Run the program."""
    have_streams()
    if any(word.startswith("--token") for word in sys.argv):
        from forewarn.cli.hiding import hide_tokens  # takes a while, and is seldom needed

        hide_tokens(sys.argv)
    try:
        app()
    except EXPECTED as error:
        say(f"forewarn: {sentence(error)}")
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has had enough; the interpreter must not complain about it at its end.
        forget_stdout()
        sys.exit(Exit.FAILED)
