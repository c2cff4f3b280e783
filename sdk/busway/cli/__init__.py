"""The `busway` command.

What lives here: the list of commands. What does not: what they do (one module each), how they speak (`output`).
"""

import typer

from busway.cli import groups, records, schema, servers, services, topics
from busway.cli.output import main_loop

app = typer.Typer(
    name="busway",
    help="An event bus for Python teams: broker, schema registry, services.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(servers.up)
app.command("broker")(servers.broker)
app.command("registry")(servers.registry)
app.add_typer(topics.app, name="topics")
app.command("produce")(records.produce)
app.command("consume")(records.consume)
app.add_typer(groups.app, name="groups")
app.add_typer(schema.app, name="schema")
app.command("run")(services.run)
app.command("demo")(services.demo)


@app.command("version")
def version() -> None:
    """The version of this installation."""
    from importlib.metadata import version as installed

    typer.echo(installed("busway"))


def main() -> None:
    """The entry point: 0 done, 1 refused or failed (one line on stderr says why), 2 wrong usage, 130 interrupted."""
    main_loop(app)
