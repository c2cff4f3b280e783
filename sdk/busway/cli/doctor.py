"""`busway doctor`.

Here: options, and the order of the checks.
Not here: the checks (`cluster_checks`, `registry_checks`, `data_checks`).
"""

from pathlib import Path
from typing import Annotated

import typer

from busway.cli.cluster_checks import check_cluster
from busway.cli.data_checks import check_data
from busway.cli.findings import Finding, report
from busway.cli.output import BOOTSTRAP, REGISTRY_URL, AsJson, Bootstrap, run
from busway.cli.registry_checks import check_registry
from busway.cli.servers import HOME
from busway.security.choosing import chosen


def doctor(
    bootstrap: Bootstrap = BOOTSTRAP,
    registry_url: Annotated[
        str | None,
        typer.Option(
            "--registry",
            "-r",
            envvar="BUSWAY_SCHEMA_REGISTRY",
            help=f"Address of the schema registry; by default {REGISTRY_URL}, which need not answer.",
        ),
    ] = None,
    no_registry: Annotated[bool, typer.Option("--no-registry", help="Do not check a schema registry.")] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", help=f"Data directory on this machine; by default {HOME}, which need not exist."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find out why clients cannot work: a line for each check, with cause and remedy; exit with 1 at a problem."""

    async def work() -> list[Finding]:
        cluster = await check_cluster(bootstrap, chosen())
        findings = cluster.findings
        if not no_registry:
            findings += await check_registry(registry_url or REGISTRY_URL, given=registry_url is not None)
        return findings + check_data(data or HOME, cluster.cluster_id, given=data is not None)

    report(run(work()), as_json=as_json)
