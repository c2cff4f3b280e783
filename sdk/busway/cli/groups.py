"""`busway groups`."""

import sys
import time
from collections.abc import Iterable
from typing import Annotated

import typer

from busway.admin.admin import Admin
from busway.admin.explanations import Rebalance
from busway.admin.groups import GroupDescription, GroupMember
from busway.admin.share_groups import SHARE
from busway.cli.explanations import as_rows, explanation
from busway.cli.output import BOOTSTRAP, AsJson, Bootstrap, CommandFailed, Yes, confirm, note, run, show, show_rows
from busway.cli.resets import chosen, duration_ms, moment_ms, planned
from busway.cli.share_groups import dead_letter_topic, is_share_group, share_group
from busway.types import TopicPartition

app: typer.Typer = typer.Typer(
    help="List, describe, explain, reset and delete consumer groups; list and describe share groups.",
    no_args_is_help=True,
)
Group = Annotated[str, typer.Argument(help="The group.")]
_LATEST = -1


@app.command("list")
def list_groups(bootstrap: Bootstrap = BOOTSTRAP, as_json: AsJson = False) -> None:
    """List all groups."""

    async def work() -> list[dict[str, object]]:
        async with Admin(bootstrap) as admin:
            return [
                {"group": group.group_id, "type": group.kind, "state": group.state}
                for group in await admin.list_groups()
            ]

    show_rows(run(work()), as_json=as_json, title="groups", columns=("group", "type", "state"))


@app.command("describe")
def describe(group: Group, bootstrap: Bootstrap = BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show the type, epochs, members, committed offsets and lag of a group; the start offsets of a share group."""

    async def work() -> tuple[GroupDescription, list[dict[str, object]], str | None]:
        async with Admin(bootstrap) as admin:
            if await is_share_group(admin, group):
                return *await share_group(admin, group), await dead_letter_topic(admin, group)
            described = await admin.describe_group(group)
            committed = await admin.list_group_offsets(group)
            owners = {partition: member for member in described.members for partition in member.partitions}
            partitions = sorted({*committed, *owners})
            there = await admin.list_topics(internal=True)
            ends = await admin.list_offsets(
                {partition: _LATEST for partition in partitions if partition.topic in there}
            )
        rows: list[dict[str, object]] = []
        for partition in partitions:
            at, end, member = committed.get(partition), ends.get(partition), owners.get(partition)
            rows.append(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "committed": at.offset if at else None,
                    "end": end,
                    "lag": end - at.offset if at and end is not None else None,
                    "member": member.member_id if member else None,
                    "client": member.client_id if member else None,
                }
            )
        return described, rows, None

    described, rows, dead_letters = run(work())
    members = [_member(member) for member in described.members]
    if as_json:
        facts = {
            "group": group,
            "type": described.kind,
            "state": described.state,
            "assignor": described.protocol,
            "epoch": described.epoch,
            "assignment_epoch": described.assignment_epoch,
            "members": members,
            "partitions": rows,
        }
        if described.kind == SHARE:
            facts["dead_letters"] = dead_letters
        show(facts, "", as_json=True)
        return
    note(f"{group}: {described.state}, {described.kind}{_epochs(described)}")
    if dead_letters is not None:
        note(f"the broker writes the group's dead letters to {dead_letters}")
    if members and sys.stdout.isatty():  # a pipe gets only the table of partitions; --json has the members too
        show_rows(members, as_json=False, title="members")
    show_rows(rows, as_json=False, title="committed offsets")


def _epochs(described: GroupDescription) -> str:
    if described.epoch < 0:
        return ""
    return (
        f", shared by {described.protocol}, epoch {described.epoch}, assignment of epoch {described.assignment_epoch}"
    )


def _member(member: GroupMember) -> dict[str, object]:
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.host,
        "instance": member.instance_id,
        "type": member.kind,
        "epoch": member.epoch if member.epoch >= 0 else None,
        "has": _shown(member.partitions),
        "target": _shown(member.target) if member.target != member.partitions else None,
    }


def _shown(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(f"{topic}-{number}" for topic, number in sorted(partitions))


@app.command("explain")
def explain(group: Group, bootstrap: Bootstrap = BOOTSTRAP, as_json: AsJson = False) -> None:
    """Explain a group's recent rebalances: members that joined and left, their reasons, moved partitions, duration."""

    async def work() -> list[Rebalance]:
        async with Admin(bootstrap) as admin:
            return await admin.explain_group(group)

    rebalances = run(work())
    show({"group": group, "rebalances": as_rows(rebalances)}, explanation(group, rebalances), as_json=as_json)


@app.command("reset")
def reset(
    group: Group,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Topic, or topic:0,1 for some partitions; repeatable.")
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
    ] = False,
    to: Annotated[str | None, typer.Option("--to", help="earliest, latest, or an offset.")] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", help="The first record at or after 2026-01-31T12:00:00 (UTC without a zone)."),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="Duration before now, such as P7D or PT1H30M.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="Number of records forward, or back, such as -10.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Change the offsets; otherwise only show the change.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Move the committed offsets of a group without members; without --execute only show the change."""
    if bool(topics) == all_topics:
        raise CommandFailed("give either --topic or --all-topics")
    if [to, to_datetime, by_duration, shift_by].count(None) != 3:
        raise CommandFailed("give one of --to, --to-datetime, --by-duration and --shift-by")
    at_ms = None if to_datetime is None else moment_ms(to_datetime)
    if by_duration is not None:
        at_ms = int(time.time() * 1000) - duration_ms(by_duration)

    async def work() -> tuple[list[dict[str, object]], list[str]]:
        async with Admin(bootstrap) as admin:
            shares = await is_share_group(admin, group)
            if shares:
                shared = await admin.list_share_group_offsets(group)
                starts = {partition: at.start_offset for partition, at in shared.items()}
            else:
                committed = await admin.list_group_offsets(group)
                starts = {partition: at.offset for partition, at in committed.items()}
            partitions = await chosen(admin, topics or (), starts)
            offsets, remarks = await planned(admin, partitions, starts, to=to, at_ms=at_ms, shift_by=shift_by)
            if execute and shares:
                await admin.alter_share_group_offsets(group, offsets)
            elif execute:
                await admin.alter_group_offsets(group, offsets)
        rows: list[dict[str, object]] = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "from": starts.get(partition),
                "to": offsets[partition],
            }
            for partition in partitions
        ]
        return rows, remarks

    rows, remarks = run(work())
    show_rows(rows, as_json=as_json, title="partitions")
    for remark in remarks:
        typer.echo(remark, err=True)
    if not execute and not as_json:
        typer.echo("nothing was changed; --execute changes the offsets")


@app.command("delete")
def delete(
    groups: Annotated[list[str], typer.Argument(help="Groups.")],
    yes: Yes = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete groups without members, with their offsets."""
    confirm(f"Delete {', '.join(groups)} with all offsets?", yes=yes)

    async def work() -> None:
        async with Admin(bootstrap) as admin:
            await admin.delete_groups(groups)

    run(work())
    show({"deleted": groups}, f"deleted {', '.join(groups)}", as_json=as_json)
