"""The network of a simulated world.

Here: addresses, listeners, opening connections, faults between two hosts: delays, silence in one direction, resets.
Not here: one connection (`sim_transport`), the order of events (`sim_loop`).
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final

from busway_bus.testing.sim_loop import SimLoop
from busway_bus.testing.sim_process import PROCESS, Host, Process
from busway_bus.testing.sim_socket import SimSocket
from busway_bus.testing.sim_transport import NetworkConditions, SimTransport

_OWN: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ALL: Final = frozenset({None, "", "0.0.0.0", "::"})  # noqa: S104 - of a simulated host
_SYN_S: Final = 1.0
"""Interval of connection attempts without a response."""
_PORTS_FROM: Final = 32_768


class SimServer(asyncio.AbstractServer):
    def __init__(
        self, network: "Network", factory: Callable[[], Any], key: tuple[str, int], process: Process, context: Context
    ) -> None:
        self._network = network
        self.factory = factory
        self.key = key
        self.process = process
        self.context = context
        self.serving = False
        self.sockets = (SimSocket((process.host.address, key[1])),)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self.serving

    async def start_serving(self) -> None:
        self.serving = True

    async def serve_forever(self) -> None:
        self.serving = True
        try:
            await self._network.loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        self.serving = False
        self._network.release(self)

    def close_clients(self) -> None:
        """Do nothing."""

    async def wait_closed(self) -> None:
        """Return at once."""


class Network:
    """The network of all hosts.

    Attributes:
        conditions: its current delays and limits.
        slow: additional delay in s of packets from one host to another, by their names.
    """

    def __init__(self, loop: SimLoop, chance: Random) -> None:
        self.loop = loop
        self.chance = chance
        self.conditions = NetworkConditions()
        self.slow: dict[tuple[str, str], float] = {}
        self._listening: dict[tuple[str, int], SimServer] = {}
        self._ports = _PORTS_FROM
        self._silent: dict[tuple[str, str], None] = {}
        self._ends: dict[SimTransport, None] = {}
        self.connections = 0

    # Names

    def host_of(self, name: str | None) -> Host | None:
        if name in _OWN or name in _ALL:
            return PROCESS.get(self.loop.world).host
        for host in self.loop.hosts.values():
            if name in {host.name, host.address}:
                return host
        return None

    def addresses(self, name: Any, port: Any) -> list[Any]:
        """Resolve a name as `getaddrinfo` does, or raise socket.gaierror."""
        if isinstance(name, bytes):
            name = name.decode()
        host = self.host_of(name)
        if host is None:
            raise socket.gaierror(socket.EAI_NONAME, f"there is no host {name} in this world")
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host.address, int(port or 0)))]

    # Listening

    def listen(self, factory: Callable[[], Any], host: Any, port: Any, *, start: bool) -> SimServer:
        """Bind a port on the running process's host.

        OSError: it is in use, or not of this host.
        """
        process = PROCESS.get(self.loop.world)
        port = port or self.free_port()
        if self.host_of(host) is not process.host:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of {process.host.name}")
        key = (process.host.name, int(port))
        if key in self._listening:
            raise OSError(errno.EADDRINUSE, f"{key[0]}:{key[1]} is taken")
        server = self._listening[key] = SimServer(self, factory, key, process, copy_context())
        server.serving = start
        return server

    def free_port(self) -> int:
        self._ports += 1
        return self._ports

    def release(self, server: SimServer) -> None:
        if self._listening.get(server.key) is server:
            del self._listening[server.key]

    # Connecting

    def delay(self) -> float:
        """Draw the delay of one packet, in s."""
        low, high = self.conditions.delay_s
        return low + (high - low) * self.chance.random()

    def delay_between(self, sender: Host, receiver: Host) -> float:
        """Draw the delay of one packet on a link, in s."""
        low, high = self.conditions.delay_s
        delay = low + (high - low) * self.chance.random()
        return delay + self.slow.get((sender.name, receiver.name), 0.0) if self.slow else delay

    def passes(self, sender: Host, receiver: Host) -> bool:
        return not self._silent or (sender.name, receiver.name) not in self._silent

    async def connect(self, factory: Callable[[], Any], name: Any, port: Any) -> tuple[SimTransport, Any]:
        """Open a connection, or raise socket.gaierror or ConnectionRefusedError."""
        process = PROCESS.get(self.loop.world)
        self.addresses(name, port)
        there = self.host_of(name)
        assert there is not None
        await asyncio.sleep(self.delay())
        while not (there.up and self.passes(process.host, there) and self.passes(there, process.host)):  # noqa: ASYNC110 - as TCP does
            await asyncio.sleep(_SYN_S)
        server = self._listening.get((there.name, int(port)))
        if server is None or not server.serving:
            await asyncio.sleep(self.delay())
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{there.name}:{port} refuses connections")
        near = self._pair(process, server)
        await asyncio.sleep(self.delay())
        if near.lost:
            raise ConnectionResetError(errno.ECONNRESET, f"{there.name}:{port} closed the connection")
        protocol = factory()
        near.begin(protocol)
        return near, protocol

    def _pair(self, process: Process, server: SimServer) -> SimTransport:
        self.connections += 1
        self._ports += 1
        ours, theirs = (process.host.address, self._ports), (server.process.host.address, server.key[1])
        window = self.chance.choice(self.conditions.window_bytes)
        name = f"{process.name}>{server.process.name}:{self.connections}"
        near = SimTransport(self, process, name=name, ours=ours, theirs=theirs, window=window, context=copy_context())
        far = SimTransport(
            self, server.process, name=name, ours=theirs, theirs=ours, window=window, context=server.context.copy()
        )
        near.peer, far.peer = far, near
        self._ends[near] = self._ends[far] = None
        self.loop.tell(process, f"connects {name}")

        def accept() -> None:
            if not far.lost and server.serving:
                far.begin(server.factory())
            else:
                far.kernel_closed(reset=True)

        far.soon(accept)
        return near

    def end(self) -> None:
        for end in self._ends:
            end.vanish()

    def forget(self, end: SimTransport) -> None:
        self._ends.pop(end, None)

    # Faults

    def between(self, host: str, peer: str | None = None) -> Iterable[SimTransport]:
        return [
            end
            for end in self._ends
            if end.process.host.name == host and (peer is None or end.peer.process.host.name == peer)
        ]

    def cut(self, host: str, peer: str | None = None) -> int:
        """Reset a host's connections, with one peer or all; return their number.

        Data in flight is lost.
        """
        ends = list(self.between(host, peer))
        for end in ends:
            self.loop.tell(end.process, f"cut {end.name}")
            end.drop(ConnectionResetError(errno.ECONNRESET, "the connection was cut"))
            end.peer.drop(ConnectionResetError(errno.ECONNRESET, "the connection was cut"))
        return len(ends)

    def silence(self, sender: str, receiver: str) -> None:
        """Hold packets from `sender` to `receiver` until `heal`."""
        self._silent[sender, receiver] = None
        self.loop.trace.add(self.loop.time(), "network", f"silence {sender}>{receiver}")

    def heal(self, sender: str | None = None, receiver: str | None = None) -> None:
        ended = [pair for pair in self._silent if sender is None or pair == (sender, receiver)]
        for pair in ended:
            del self._silent[pair]
            self.loop.trace.add(self.loop.time(), "network", f"reachable again {pair[0]}>{pair[1]}")
        for end in list(self._ends):
            end.peer.arrivals_pass()
            end.arrivals_pass()  # its peer may be closed, and no longer in the list

    def process_ended(self, process: Process, *, silent: bool) -> None:
        """Close an ended process's sockets, after a power cut without notice."""
        for server in [server for server in self._listening.values() if server.process is process]:
            server.close()
        for end in [end for end in self._ends if end.process is process]:
            if silent:
                end.vanish()
                if (keepalive := end.peer.keepalive_s()) is not None:
                    self.loop.later(keepalive[1], end.never_answers)
            else:
                end.kernel_closed(reset=bool(self.chance.randrange(2)))

    def host_is_back(self, host: Host) -> None:
        """Restore a host's power. It resets old connections in use or kept alive."""
        for end in list(self._ends):
            if end.vanished and end.process.host is host:
                end.reset_after_power_cut()
                if (keepalive := end.peer.keepalive_s()) is not None:
                    self.loop.later(self.chance.uniform(0, keepalive[0]), end.asked)
