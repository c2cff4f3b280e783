"""`busway features`."""

from typing import Annotated

import typer

from busway.admin.admin import Admin
from busway.cli.output import BOOTSTRAP, AsJson, Bootstrap, CommandFailed, run, show, show_rows

app: typer.Typer = typer.Typer(
    help="Describe the cluster's features, and raise, lower and turn off their levels.", no_args_is_help=True
)
Levels = Annotated[list[str], typer.Argument(help="FEATURE=LEVEL; several are set together or not at all.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the request and change nothing.")]
Unsafe = Annotated[bool, typer.Option("--unsafe", help="Allow a loss of metadata.")]


@app.command("describe")
def describe(bootstrap: Bootstrap = BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the supported and the finalized levels."""

    async def work() -> list[dict[str, object]]:
        async with Admin(bootstrap) as admin:
            described = await admin.describe_features()
        return [
            {
                "feature": feature.name,
                "lowest": feature.lowest,
                "highest": feature.highest,
                "finalized": feature.finalized,
                "epoch": described.epoch,
            }
            for feature in described.features.values()
        ]

    show_rows(run(work()), as_json=as_json, title="features")


@app.command("upgrade")
def upgrade(levels: Levels, dry_run: DryRun = False, bootstrap: Bootstrap = BOOTSTRAP, as_json: AsJson = False) -> None:
    """Raise levels: `busway features upgrade group.version=1`."""
    _update(_parsed(levels), bootstrap, "raised", as_json=as_json, dry_run=dry_run)


@app.command("downgrade")
def downgrade(
    levels: Levels,
    unsafe: Unsafe = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Lower levels: `busway features downgrade transaction.version=1`."""
    _update(_parsed(levels), bootstrap, "lowered", as_json=as_json, dry_run=dry_run, downgrade=True, unsafe=unsafe)


@app.command("disable")
def disable(
    features: Annotated[list[str], typer.Argument(help="Features; several are turned off together or not at all.")],
    unsafe: Unsafe = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Turn features off: lower them to level 0."""
    levels = dict.fromkeys(features, 0)
    _update(levels, bootstrap, "lowered", as_json=as_json, dry_run=dry_run, downgrade=True, unsafe=unsafe)


def _update(
    levels: dict[str, int],
    bootstrap: str,
    done: str,
    *,
    as_json: bool,
    dry_run: bool,
    downgrade: bool = False,
    unsafe: bool = False,
) -> None:
    async def work() -> None:
        async with Admin(bootstrap) as admin:
            await admin.update_features(levels, downgrade=downgrade, unsafe=unsafe, validate_only=dry_run)

    run(work())
    named = ", ".join(f"{name} to {level}" for name, level in levels.items())
    show({"levels": levels, "changed": not dry_run}, f"{'can be ' if dry_run else ''}{done}: {named}", as_json=as_json)


def _parsed(texts: list[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for text in texts:
        name, _, level = text.rpartition("=")
        if not name or not (level.isascii() and level.isdigit()):
            raise CommandFailed(f"{text}: give FEATURE=LEVEL, such as group.version=1")
        if name in levels:
            raise CommandFailed(f"{name} is given twice; give one level")
        levels[name] = int(level)
    return levels
