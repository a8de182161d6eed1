"""Tenants: `TenantPool` against a naive version, and how a tenant tells its client of changed tools."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from forebay.config.options import Settings
from forebay.hub.client_peer import ClientPeer
from forebay.hub.tenants import Tenant, TenantPool
from forebay.hub.upstreams import Upstreams
from forebay.outputs.policy import OutputPolicy
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from waiting import wait_until_async

CAPABILITIES: list[dict[str, object]] = [{}, {"roots": {}}, {"sampling": {}}]
Client = tuple[str | None, int]
"""A principal, and the index of its capabilities."""
CLIENTS = st.tuples(st.sampled_from(["ann", "bob", "cid", None]), st.integers(0, len(CAPABILITIES) - 1))
STEPS = st.lists(st.tuples(CLIENTS, st.booleans()), max_size=40)
MAX_TENANTS_PER_PRINCIPAL = 2


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutputPolicy]:
    gate = OutputPolicy(tmp_path_factory.mktemp("store").as_uri(), sweep_interval=0)
    yield gate
    gate.close()


class NaivePool:
    """A pool that keeps idle clients in the order in which they became idle."""

    def __init__(self, max_tenants: int) -> None:
        self.max_tenants = max_tenants
        self.idle: list[Client] = []
        self.in_use: dict[Client, int] = {}
        self.created = 0

    def begin(self, client: Client) -> str | None:
        """Return what the error names if there is no room."""
        if client not in self.in_use and client not in self.idle:
            own = [known for known in [*self.idle, *self.in_use] if known[0] == client[0]]
            if len(own) == MAX_TENANTS_PER_PRINCIPAL:
                idle = [known for known in own if known in self.idle]
                if not idle:
                    return "the same capabilities"
                self.idle.remove(idle[0])
            elif len(self.idle) + len(self.in_use) == self.max_tenants:
                if not self.idle:
                    return "max_connections"
                self.idle.pop(0)
            self.created += 1
        if client in self.idle:
            self.idle.remove(client)
        self.in_use[client] = self.in_use.get(client, 0) + 1
        return None

    def end(self, client: Client) -> None:
        self.in_use[client] -= 1
        if not self.in_use[client]:
            del self.in_use[client]
            self.idle.append(client)


@pytest.mark.slow
@given(steps=STEPS, max_tenants=st.integers(1, 4))
def test_the_pool_equals_the_naive_pool(gate: OutputPolicy, steps: list[tuple[Client, bool]], max_tenants: int) -> None:
    asyncio.run(_compare(gate, steps, max_tenants))


async def _compare(gate: OutputPolicy, steps: list[tuple[Client, bool]], max_tenants: int) -> None:
    created: list[Tenant] = []

    def make(capabilities: dict[str, object]) -> Tenant:
        created.append(Tenant(Upstreams({}), ClientPeer(capabilities=capabilities), gate, Settings(), {}))
        return created[-1]

    pool, naive = TenantPool(make, max_tenants, None, MAX_TENANTS_PER_PRINCIPAL), NaivePool(max_tenants)
    in_flight: dict[Client, list[AsyncExitStack]] = {}
    for client, is_begun in steps:
        principal, capabilities = client[0], CAPABILITIES[client[1]]
        if is_begun:
            stack = AsyncExitStack()
            missing = naive.begin(client)
            if missing is None:
                tenant = await stack.enter_async_context(pool.acquire(principal, capabilities))
                assert tenant.client.capabilities == capabilities
                in_flight.setdefault(client, []).append(stack)
            else:
                with pytest.raises(MCPError, match=missing):
                    await stack.enter_async_context(pool.acquire(principal, capabilities))
        elif in_flight.get(client):
            await in_flight[client].pop().aclose()
            naive.end(client)
        assert len(created) == naive.created
        assert sum(not tenant._is_closed for tenant in created) <= max_tenants
        open_clients = [
            (key[0], CAPABILITIES.index(entry.tenant.client.capabilities)) for key, entry in pool._entries.items()
        ]
        assert sorted(open_clients, key=str) == sorted([*naive.idle, *naive.in_use], key=str)
    await pool.close()
    assert all(tenant._is_closed for tenant in created)
    with pytest.raises(MCPError, match="about to end"):
        await AsyncExitStack().enter_async_context(pool.acquire("dan", {}))


class UnreadConnection:
    """The connection of a client that reads only while `reads` is set."""

    def __init__(self) -> None:
        self.initialized, self.reads = asyncio.Event(), asyncio.Event()
        self.initialized.set()
        self.outbound = self
        self.received: list[str] = []

    async def notify(self, method: str, params: object) -> None:
        assert params is None
        await self.reads.wait()
        self.received.append(method)


def test_changes_of_the_tools_do_not_pile_up(gate: OutputPolicy) -> None:
    async def run() -> None:
        connection = UnreadConnection()
        tenant = Tenant(Upstreams({}), ClientPeer(connection), gate, Settings(), {})  # type: ignore[arg-type]
        before = len(asyncio.all_tasks())
        for _ in range(100):
            tenant._on_tools_changed()
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) <= before + 1
        connection.reads.set()
        # The client may have listed the tools after the first notification, so that it needs a second one.
        await wait_until_async(lambda: connection.received == 2 * ["notifications/tools/list_changed"])
        await tenant.close()

    asyncio.run(run())
