"""The names of the prompts of several servers."""

import asyncio
from pathlib import Path

import pytest
from forebay.hub.hub import Hub
from hub_client import HubClient, running_hub, stepping_server

pytestmark = pytest.mark.slow


async def _find_origins(hub: Hub) -> dict[str, str]:
    """Return what the server of each listed prompt says when a client asks for it."""
    client = HubClient(hub, {})
    await client.initialize()
    listed = (await client.request("prompts/list"))["result"]["prompts"]
    origins = {}
    for name in [prompt["name"] for prompt in listed]:
        assert name not in origins
        got = await client.request("prompts/get", {"name": name})
        origins[name] = got["result"]["messages"][0]["content"]["text"]
    return origins


def test_each_prompt_has_a_name_of_its_own(tmp_path: Path) -> None:
    async def run() -> None:
        upstreams = {
            "a": stepping_server(tmp_path, "a", prompts=["p", "q", "q", "ein Grüß"]),
            "b": stepping_server(tmp_path, "b", prompts=["p", "a_p", "a_p_2", "b_p"]),
        }
        async with running_hub(tmp_path, upstreams) as hub:
            assert await _find_origins(hub) == {
                "a_p_3": "a: p",
                "q": "a: q",
                "ein Grüß": "a: ein Grüß",
                "b_p_2": "b: p",
                "a_p": "b: a_p",
                "a_p_2": "b: a_p_2",
                "b_p": "b: b_p",
            }

    asyncio.run(run())
