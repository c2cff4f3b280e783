"""Share groups in `busway groups`.

Here: rows.
Not here: commands (`groups`).
"""

from busway.admin.admin import Admin
from busway.admin.groups import GroupDescription, GroupMember
from busway.admin.share_groups import GROUP, SHARE


async def is_share_group(admin: Admin, group: str) -> bool:
    return any(listed.group_id == group and listed.kind == SHARE for listed in await admin.list_groups())


async def dead_letter_topic(admin: Admin, group: str) -> str | None:
    setting = (await admin.describe_configs(group, kind=GROUP)).get("errors.deadletterqueue.topic.name")
    return (setting.value or None) if setting is not None else None


async def share_group(admin: Admin, group: str) -> tuple[GroupDescription, list[dict[str, object]]]:
    described = await admin.describe_share_group(group)
    offsets = await admin.list_share_group_offsets(group)
    partitions = {*offsets, *(partition for member in described.members for partition in member.partitions)}
    shown = GroupDescription(
        group_id=group,
        state=described.state,
        protocol=described.assignor,
        members=tuple(
            GroupMember(
                member.member_id,
                member.client_id,
                member.host,
                member.partitions,
                None,
                SHARE,
                member.epoch,
                member.partitions,
            )
            for member in described.members
        ),
        kind=SHARE,
        epoch=described.epoch,
        assignment_epoch=described.epoch,
    )
    return shown, [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "start": offsets[partition].start_offset if partition in offsets else None,
            "lag": offsets[partition].lag if partition in offsets else None,
            "members": [member.member_id for member in described.members if partition in member.partitions],
            "clients": sorted({member.client_id for member in described.members if partition in member.partitions}),
        }
        for partition in sorted(partitions)
    ]
