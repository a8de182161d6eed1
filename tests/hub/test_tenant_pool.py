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

STEPS = st.lists(st.tuples(st.sampled_from(["ann", "bob", "cid", None]), st.booleans()), max_size=40)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutputPolicy]:
    gate = OutputPolicy(tmp_path_factory.mktemp("store").as_uri(), sweep_interval=0)
    yield gate
    gate.close()


class NaivePool:
    """A pool that keeps idle principals in the order in which they became idle."""

    def __init__(self, max_tenants: int) -> None:
        self.max_tenants = max_tenants
        self.idle: list[str | None] = []
        self.in_use: dict[str | None, int] = {}
        self.created = 0

    def begin(self, principal: str | None) -> bool:
        if principal not in self.in_use and principal not in self.idle:
            if len(self.idle) + len(self.in_use) == self.max_tenants:
                if not self.idle:
                    return False
                self.idle.pop(0)
            self.created += 1
        if principal in self.idle:
            self.idle.remove(principal)
        self.in_use[principal] = self.in_use.get(principal, 0) + 1
        return True

    def end(self, principal: str | None) -> None:
        self.in_use[principal] -= 1
        if not self.in_use[principal]:
            del self.in_use[principal]
            self.idle.append(principal)


@pytest.mark.slow
@given(steps=STEPS, max_tenants=st.integers(1, 4))
def test_the_pool_equals_the_naive_pool(
    gate: OutputPolicy, steps: list[tuple[str | None, bool]], max_tenants: int
) -> None:
    asyncio.run(_compare(gate, steps, max_tenants))


async def _compare(gate: OutputPolicy, steps: list[tuple[str | None, bool]], max_tenants: int) -> None:
    created: list[Tenant] = []

    def make() -> Tenant:
        created.append(Tenant(Upstreams({}), ClientPeer(), gate, Settings(), {}))
        return created[-1]

    pool, naive = TenantPool(make, max_tenants, None), NaivePool(max_tenants)
    in_flight: dict[str | None, list[AsyncExitStack]] = {}
    for principal, is_begun in steps:
        if is_begun:
            stack = AsyncExitStack()
            if naive.begin(principal):
                await stack.enter_async_context(pool.acquire(principal))
                in_flight.setdefault(principal, []).append(stack)
            else:
                with pytest.raises(MCPError, match="max_connections"):
                    await stack.enter_async_context(pool.acquire(principal))
        elif in_flight.get(principal):
            await in_flight[principal].pop().aclose()
            naive.end(principal)
        assert len(created) == naive.created
        assert sum(not scope._is_closed for scope in created) <= max_tenants
        assert {*pool._entries} == {*naive.idle, *naive.in_use}
    await pool.close()
    assert all(scope._is_closed for scope in created)
    with pytest.raises(MCPError, match="about to end"):
        await AsyncExitStack().enter_async_context(pool.acquire("dan"))


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
