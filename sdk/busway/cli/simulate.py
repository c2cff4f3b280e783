"""`busway simulate`.

Here: options and output.
Not here: the simulation (`busway.testing.simulation`).
"""

import logging
import os
import sys
from typing import Annotated, Any

import typer

from busway.cli.output import CommandFailed
from busway.errors import BuswayError
from busway.extras import need
from busway.testable_app import App

_HASHES = "PYTHONHASHSEED"


def simulate(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="A Simulation, or an App whose module has a Simulation of it.")
    ],
    seeds: Annotated[int, typer.Option("--seeds", help="Number of histories, with the seeds from --first on.")] = 1000,
    first: Annotated[int, typer.Option("--first", help="The first seed.")] = 0,
    seed: Annotated[
        str | None, typer.Option("--seed", help="Only this history, as in a failure report: 17, or 17:0,4.")
    ] = None,
    time_s: Annotated[
        float | None, typer.Option("--time", metavar="SECONDS", help="Time after which no history is started.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="Brokers, 1 or 3 to 7; by default what the Simulation says, else 1.")
    ] = None,
    shrink: Annotated[bool, typer.Option("--shrink/--no-shrink", help="Reduce a failure to the fewest faults.")] = True,
) -> None:
    """Run a service with crashes, freezes and closed connections under many seeds, and check its properties."""
    need("simulation", "busway simulate")
    if seeds < 1:
        raise CommandFailed(f"--seeds {seeds}: give 1 or more")
    if os.environ.get(_HASHES) != "0":
        # Fixes the order of sets of strings, so that a failure is reproducible.
        sys.stdout.flush()
        arguments = [sys.executable, "-m", "busway.cli", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, _HASHES: "0"})  # noqa: S606 - our own module
    from busway.testing.cluster import check_nodes
    from busway.testing.simulation.faults import Seed
    from busway.testing.simulation.simulation import SimulationFailed

    logging.getLogger().addHandler(logging.NullHandler())
    simulation = _find(target)
    if seed is not None:
        try:
            Seed.parse(seed)
        except ValueError as problem:
            raise CommandFailed(f"--seed {problem}") from None
    if nodes is not None:
        try:
            check_nodes(nodes)
        except ValueError as problem:
            raise CommandFailed(f"--nodes: {problem}") from None
    try:
        count = simulation.run(range(first, first + seeds), seed=seed, shrink=shrink, time_s=time_s, nodes=nodes)
    except SimulationFailed as failed:
        typer.echo(str(failed))
        raise typer.Exit(1) from None
    until = f"seed {seed}" if seed is not None else f"seeds {first} to {first + count - 1}"
    brokers = f" on {nodes} nodes" if nodes is not None else ""
    typer.echo(f"{target}: {count} histories hold{brokers}, {until}")


def _find(target: str) -> Any:
    from busway.testing.simulation.service import NoService, attribute_of, here_first
    from busway.testing.simulation.simulation import Simulation

    here_first()
    try:
        named = attribute_of(target)
    except ModuleNotFoundError as missing:
        raise CommandFailed(f"{target}: there is no module {missing.name}; run this where it can be imported") from None
    except NoService as problem:
        raise CommandFailed(str(problem)) from None
    except BuswayError:
        raise
    except Exception as problem:
        raise CommandFailed(f"{target} cannot be imported: {type(problem).__name__}: {problem}") from problem
    if isinstance(named, Simulation):
        return named
    module = sys.modules[target.partition(":")[0]]
    simulations = [
        value for value in vars(module).values() if isinstance(value, Simulation) and value.target in {target, named}
    ]
    if isinstance(named, App) and simulations:
        return simulations[0]
    raise CommandFailed(
        f"{target} is not a Simulation, and its module has none of it; write a workload and properties: "
        f"simulation = busway.testing.Simulation({target!r}), then name that"
    )
