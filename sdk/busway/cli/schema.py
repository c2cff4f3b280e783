"""`busway schema`."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from busway.cli.output import REGISTRY_URL, AsJson, CommandFailed, RegistryUrl, Yes, confirm, run, show, show_rows
from busway.serde.registry import RegistryClient
from busway.serde.registry_errors import breaches as readable

app: typer.Typer = typer.Typer(help="Register, compare, show and delete schemas.", no_args_is_help=True)
Subject = Annotated[str, typer.Argument(help="The subject, such as orders-value.")]
File = Annotated[Path, typer.Argument(help="An Avro schema as JSON.")]
T = TypeVar("T")


def _ask(url: str, work: Callable[[RegistryClient], Coroutine[Any, Any, T]]) -> T:
    async def main() -> T:
        async with RegistryClient(url) as client:
            return await work(client)

    return run(main())


@app.command("list")
def list_subjects(url: RegistryUrl = REGISTRY_URL, as_json: AsJson = False) -> None:
    """List all subjects with their versions."""

    async def work(client: RegistryClient) -> list[dict[str, object]]:
        return [{"subject": subject, "versions": await client.versions(subject)} for subject in await client.subjects()]

    show_rows(_ask(url, work), as_json=as_json, title="subjects", columns=("subject", "versions"))


@app.command("get")
def get(
    subject: Subject,
    version: Annotated[str, typer.Option("--version", "-v", help="A number, or latest.")] = "latest",
    url: RegistryUrl = REGISTRY_URL,
    as_json: AsJson = False,
) -> None:
    """Print the schema of a version."""
    registered = _ask(url, lambda client: client.version(subject, version))
    show(
        {
            "subject": registered.subject,
            "version": registered.version,
            "id": registered.id,
            "schema": registered.schema,
        },
        registered.schema,
        as_json=as_json,
    )


@app.command("register")
def register(subject: Subject, file: File, url: RegistryUrl = REGISTRY_URL, as_json: AsJson = False) -> None:
    """Register the schema in a file."""
    text = file.read_text(encoding="utf-8")
    schema_id = _ask(url, lambda client: client.register(subject, text))
    show({"subject": subject, "id": schema_id}, f"{subject} has id {schema_id}", as_json=as_json)


@app.command("check")
def check(subject: Subject, file: File, url: RegistryUrl = REGISTRY_URL, as_json: AsJson = False) -> None:
    """Check whether the schema in a file could be registered; if not, exit with 1 and the reasons."""
    text = file.read_text(encoding="utf-8")
    breaches = _ask(url, lambda client: client.check(subject, text))
    if breaches:
        if as_json:
            show({"compatible": False, "messages": breaches}, "", as_json=True)
            raise typer.Exit(1)
        raise CommandFailed(f"not compatible with {subject}:\n  " + "\n  ".join(readable(breaches)))
    show({"compatible": True, "messages": []}, f"compatible with {subject}", as_json=as_json)


@app.command("level")
def level(
    subject: Annotated[str | None, typer.Argument(help="The subject; by default the whole registry.")] = None,
    to: Annotated[str | None, typer.Option("--set", help="BACKWARD, FORWARD, FULL, …_TRANSITIVE or NONE.")] = None,
    url: RegistryUrl = REGISTRY_URL,
    as_json: AsJson = False,
) -> None:
    """Show or set the compatibility level."""

    async def work(client: RegistryClient) -> str:
        if to is not None:
            await client.set_compatibility(to, subject)
        return await client.compatibility(subject)

    in_force = _ask(url, work)
    show({"subject": subject, "compatibility": in_force}, in_force, as_json=as_json)


@app.command("delete")
def delete(
    subject: Subject,
    permanent: Annotated[bool, typer.Option("--permanent", help="Delete permanently, after a soft deletion.")] = False,
    yes: Yes = False,
    url: RegistryUrl = REGISTRY_URL,
    as_json: AsJson = False,
) -> None:
    """Delete a subject softly, or with --permanent for good."""
    confirm(f"Delete {subject}{' for good' if permanent else ''}?", yes=yes)
    gone = _ask(url, lambda client: client.delete_subject(subject, permanent=permanent))
    show(
        {"subject": subject, "versions": gone},
        f"deleted versions {', '.join(map(str, gone))} of {subject}"
        + ("" if permanent else "; --permanent removes them"),
        as_json=as_json,
    )
