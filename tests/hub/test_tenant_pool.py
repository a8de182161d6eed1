"""The pool of stateless tenants against a naive version."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from forebay.config.options import Settings
from forebay.hub.hub import Hub
from forebay.hub.stateless import StatelessTenant, TenantPool
from forebay.wire.errors import RequestFailed
from hypothesis import given
from hypothesis import strategies as st

CAPABILITIES: list[dict[str, object]] = [{}, {"roots": {}}, {"sampling": {}}]
Client = tuple[str | None, int]
"""A principal, and the index of its capabilities."""
CLIENTS = st.tuples(st.sampled_from(["ann", "bob", "cid", None]), st.integers(0, len(CAPABILITIES) - 1))
STEPS = st.lists(st.tuples(CLIENTS, st.booleans()), max_size=40)
MAX_TENANTS_PER_PRINCIPAL = 2


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tmp_path_factory.mktemp("store").as_uri()


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
def test_the_pool_equals_the_naive_pool(store: str, steps: list[tuple[Client, bool]], max_tenants: int) -> None:
    asyncio.run(_compare(store, steps, max_tenants))


async def _compare(store: str, steps: list[tuple[Client, bool]], max_tenants: int) -> None:
    hub = Hub(Settings(store=store, sweep_interval=0, sources={"store": "test", "sweep_interval": "test"}))
    created: list[StatelessTenant] = []

    def make(principal: str | None, capabilities: dict[str, object]) -> StatelessTenant:
        created.append(hub._make_stateless(principal, capabilities))
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
                assert (tenant.session.principal, tenant.capabilities) == (principal, capabilities)
                in_flight.setdefault(client, []).append(stack)
            else:
                with pytest.raises(RequestFailed, match=missing):
                    await stack.enter_async_context(pool.acquire(principal, capabilities))
        elif in_flight.get(client):
            await in_flight[client].pop().aclose()
            naive.end(client)
        assert len(created) == naive.created
        assert sum(not tenant._is_closed for tenant in created) <= max_tenants
        open_clients = [(tenant.session.principal, CAPABILITIES.index({**tenant.capabilities})) for tenant in pool]
        assert sorted(open_clients, key=str) == sorted([*naive.idle, *naive.in_use], key=str)
    await pool.close()
    assert all(tenant._is_closed for tenant in created)
    with pytest.raises(RequestFailed, match="about to end"):
        await AsyncExitStack().enter_async_context(pool.acquire("dan", {}))
    await hub.close()
