"""Which scope is closed when, against what one would do by hand."""

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

STEPS = st.lists(st.tuples(st.sampled_from(["ann", "bob", "cid", None]), st.booleans()), max_size=40)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutputPolicy]:
    gate = OutputPolicy(tmp_path_factory.mktemp("store").as_uri(), sweep_interval=0)
    yield gate
    gate.close()


class _ByHand:
    """Principals in the order in which they became idle, and those in use."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.idle: list[str | None] = []
        self.used: dict[str | None, int] = {}
        self.made = 0

    def begin(self, principal: str | None) -> bool:
        if principal not in self.used and principal not in self.idle:
            if len(self.idle) + len(self.used) == self.most:
                if not self.idle:
                    return False
                self.idle.pop(0)
            self.made += 1
        if principal in self.idle:
            self.idle.remove(principal)
        self.used[principal] = self.used.get(principal, 0) + 1
        return True

    def end(self, principal: str | None) -> None:
        self.used[principal] -= 1
        if not self.used[principal]:
            del self.used[principal]
            self.idle.append(principal)


@pytest.mark.slow
@given(steps=STEPS, most=st.integers(1, 4))
def test_as_by_hand(gate: OutputPolicy, steps: list[tuple[str | None, bool]], most: int) -> None:
    asyncio.run(_as_by_hand(gate, steps, most))


async def _as_by_hand(gate: OutputPolicy, steps: list[tuple[str | None, bool]], most: int) -> None:
    made: list[Tenant] = []

    def make() -> Tenant:
        made.append(Tenant(Upstreams({}), ClientPeer(), gate, Settings(), {}))
        return made[-1]

    scopes, by_hand = TenantPool(make, most, None), _ByHand(most)
    under_way: dict[str | None, list[AsyncExitStack]] = {}
    for principal, is_begun in steps:
        if is_begun:
            stack = AsyncExitStack()
            if by_hand.begin(principal):
                await stack.enter_async_context(scopes.acquire(principal))
                under_way.setdefault(principal, []).append(stack)
            else:
                with pytest.raises(MCPError, match="max_connections"):
                    await stack.enter_async_context(scopes.acquire(principal))
        elif under_way.get(principal):
            await under_way[principal].pop().aclose()
            by_hand.end(principal)
        assert len(made) == by_hand.made
        assert sum(not scope._is_closed for scope in made) <= most
        assert {*scopes._entries} == {*by_hand.idle, *by_hand.used}
    await scopes.close()
    assert all(scope._is_closed for scope in made)
    with pytest.raises(MCPError, match="about to end"):
        await AsyncExitStack().enter_async_context(scopes.acquire("dan"))
