"""What `busway groups` shows of a share group.

What lives here: its rows. What does not: the commands (`groups`).
"""

from busway.admin.admin import Admin
from busway.admin.share_groups import SHARE


async def is_share_group(admin: Admin, group: str) -> bool:
    """Whether a group is a share group."""
    kinds = {listed.group_id: listed.group_type for listed in await admin.list_groups()}
    return kinds.get(group, "").casefold() == SHARE.casefold()


async def share_group(admin: Admin, group: str) -> tuple[str, list[dict[str, object]]]:
    """Its state, and for each partition from where it goes on, how much is left, and who takes records of it."""
    described = await admin.describe_share_group(group)
    offsets = await admin.list_share_group_offsets(group)
    partitions = {*offsets, *(partition for member in described.members for partition in member.partitions)}
    return described.state, [
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
