"""Duplicate notifications for several subscriptions of a connection are recognized."""

from typing import Any

import pytest
from forebay.hub.in_flight import OpenSubscriptions
from mcp_types import JSONRPCNotification, JSONRPCRequest

CHANGED = "notifications/tools/list_changed"


def make_notification(subscription: Any) -> JSONRPCNotification:
    meta = {"io.modelcontextprotocol/subscriptionId": subscription}
    return JSONRPCNotification(jsonrpc="2.0", method=CHANGED, params={"_meta": meta})


@pytest.mark.parametrize("odd", [[1], {"a": 1}, None, 3], ids=repr)
def test_a_notification_on_a_second_subscription_is_a_duplicate(odd: Any) -> None:
    subscriptions = OpenSubscriptions()
    for number in (1, 2):
        params = {"notifications": {"toolsListChanged": True}}
        subscriptions.on_sent(JSONRPCRequest(jsonrpc="2.0", id=number, method="subscriptions/listen", params=params))
    assert [subscriptions.is_duplicate(make_notification(of)) for of in (1, 2, odd)] == [False, True, False]
