"""The network in memory: bytes in order, back-pressure, half-closed ends, resets, silence, power cuts."""

import asyncio
import socket

import pytest

from busway_bus.testing.sim_network import NetworkConditions
from busway_bus.testing.world import SimProcess, World

PORT = 7000
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def pair(world: World) -> tuple[SimProcess, SimProcess, Streams, Streams]:
    """Client and server processes, and the two ends of a connection between them."""
    server, client = world.process("server"), world.process("client")
    accepted: asyncio.Queue[Streams] = asyncio.Queue()

    async def listen() -> None:
        await asyncio.start_server(lambda *ends: accepted.put_nowait(ends), "server", PORT)

    await server.run(listen)
    near = await client.run(asyncio.open_connection, "server", PORT)
    return client, server, near, await accepted.get()


async def drain(reader: asyncio.StreamReader) -> list[bytes]:
    """What comes, in the pieces in which it does, to the end."""
    pieces = []
    while piece := await reader.read(1 << 20):
        pieces.append(piece)
    return pieces


def test_bytes_come_in_order_in_any_pieces() -> None:
    """To the end, which is reported; the other direction goes on."""

    async def workload(world: World) -> int:
        world.network.conditions = NetworkConditions(cut_chance=0.5, window_bytes=(3000,))
        client, server, near, far = await pair(world)
        sent = bytes(range(256)) * 200

        async def send() -> list[bytes]:
            for at in range(0, len(sent), 999):
                near[1].write(sent[at : at + 999])
                await near[1].drain()
            near[1].write_eof()
            return await drain(near[0])

        async def take() -> list[bytes]:
            pieces = await drain(far[0])
            far[1].write(b"thanks")
            far[1].close()
            return pieces

        answer, pieces = await asyncio.gather(client.run(send), server.run(take))
        assert b"".join(pieces) == sent
        assert b"".join(answer) == b"thanks"
        return len(pieces)

    assert len({World(seed).run(workload) for seed in range(8)}) > 1


def test_who_is_not_read_from_has_to_wait() -> None:
    """No more than the window and the buffers' limits are on their way."""

    async def workload(world: World) -> None:
        world.network.conditions = NetworkConditions(window_bytes=(10_000,))
        client, server, near, far = await pair(world)
        taken = 0

        async def send() -> None:
            nonlocal taken
            for _ in range(100):
                near[1].write(bytes(10_000))
                await near[1].drain()
                taken += 10_000

        sending = client.start(send)
        await world.sleep(10)
        assert taken < 300_000
        near[1].transport.get_write_buffer_size()
        reading = server.start(drain, far[0])
        await sending
        near[1].close()
        assert sum(map(len, await reading)) == 1_000_000

    World().run(workload)


def test_a_cut_is_a_reset_at_both_ends() -> None:
    """In the middle of what is on its way."""

    async def workload(world: World) -> None:
        client, server, near, far = await pair(world)
        near[1].write(b"lost")
        assert world.network.cut("client", "server") == 1
        for process, end in ((client, near), (server, far)):
            with pytest.raises(ConnectionResetError):
                await process.run(end[0].read, 1)
        again = await client.run(asyncio.open_connection, "server", PORT)
        again[1].close()

    World().run(workload)


def test_silence_is_of_one_direction_and_ends() -> None:
    """What was sent meanwhile comes then; who connects meanwhile waits."""

    async def workload(world: World) -> None:
        client, server, near, far = await pair(world)
        world.network.silence("client", "server")
        near[1].write(b"late")
        far[1].write(b"now")
        assert await client.run(near[0].read, 10) == b"now"
        reading = server.start(far[0].read, 10)
        connecting = client.start(asyncio.open_connection, "server", PORT)
        await world.sleep(30)
        assert not reading.done()
        assert not connecting.done()
        world.network.heal()
        assert await reading == b"late"
        await connecting

    World().run(workload)


def test_what_was_sent_before_a_close_comes_when_the_silence_ends() -> None:
    """The last words and the end of a peer that has closed its socket while it was not read."""

    async def workload(world: World) -> None:
        client, server, near, far = await pair(world)
        world.network.silence("server", "client")

        async def leave() -> None:
            far[1].write(b"last words")
            far[1].close()
            await far[1].wait_closed()

        reading = client.start(drain, near[0])
        await server.run(leave)
        await world.sleep(30)
        assert not reading.done()
        world.network.heal()
        assert b"".join(await reading) == b"last words"

    World().run(workload)


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_is_noticed_and_one_without_power_is_not(seed: int) -> None:
    """Until its host is back and is sent something that it knows nothing of."""

    async def workload(world: World) -> None:
        client, server, near, _ = await pair(world)
        server.crash()
        reading = client.start(near[0].read, 1)
        outcome = await asyncio.gather(reading, return_exceptions=True)
        assert outcome == [b""] or isinstance(outcome[0], ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await client.run(asyncio.open_connection, "server", PORT)

        client, server, near, _ = await pair(world)
        world.crash(server.process, silent=True)
        server.process.host.up = False
        reading = client.start(near[0].read, 1)
        near[1].write(b"x")
        await world.sleep(100)
        assert not reading.done()
        server.process.host.up = True
        world.network.host_is_back(server.process.host)
        with pytest.raises(ConnectionResetError):
            await reading

    World(seed).run(workload)


def test_a_frozen_process_reads_what_has_come_at_once() -> None:
    """When it thaws; its peer has sent on until the window was full."""

    async def workload(world: World) -> None:
        _, server, near, far = await pair(world)
        server.freeze()
        for _ in range(10):
            near[1].write(b"0123456789")
            await world.sleep(0.1)
        server.thaw()
        assert await server.run(far[0].read, 1000) == b"0123456789" * 10

    World().run(workload)


def test_names_and_ports() -> None:
    """Hosts are found by name and address; a port is had once, and no process binds another's host."""

    async def workload(world: World) -> None:
        server = world.process("server")
        host = server.process.host

        async def work() -> None:
            loop = asyncio.get_running_loop()
            listening = await loop.create_server(asyncio.Protocol, "localhost", PORT)
            assert listening.sockets[0].getsockname() == (host.address, PORT)
            with pytest.raises(OSError, match="taken"):
                await loop.create_server(asyncio.Protocol, "server", PORT)
            with pytest.raises(OSError, match="not an address of server"):
                await loop.create_server(asyncio.Protocol, "world", PORT)
            (address,) = await loop.getaddrinfo("server", PORT)
            assert address[4] == (host.address, PORT)
            with pytest.raises(socket.gaierror, match="no host nowhere"):
                await loop.create_connection(asyncio.Protocol, "nowhere", PORT)
            listening.close()
            with pytest.raises(ConnectionRefusedError):
                await loop.create_connection(asyncio.Protocol, host.address, PORT)
            await loop.create_server(asyncio.Protocol, None, 0)

        await server.run(work)

    World().run(workload)
