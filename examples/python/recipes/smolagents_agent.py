"""An agent of smolagents. The session is the agent's, since smolagents has no conversations.

Needs `pip install ./clients/python smolagents openai` and a server: `callgate serve`.
"""

import uuid

from callgate import Gate, gated
from smolagents import OpenAIModel, ToolCallingAgent, tool

gate = Gate(f"agent-{uuid.uuid4()}")


@tool
@gated(gate, for_model=True)
def find_orders(query: str, limit: int = 10) -> list[str]:
    """Finds orders by a word.

    Args:
        query: The word.
        limit: How many there may be.
    """
    print("finding", query)
    return ["o-17"][:limit]


@tool
@gated(gate, for_model=True)
def refund(order_id: str) -> dict[str, str]:
    """Pays an order back.

    Args:
        order_id: The order.
    """
    print("refunding", order_id)
    return {"refunded": order_id}


@tool
@gated(gate, for_model=True)
def delete_order(order_id: str) -> str:
    """Deletes an order.

    Args:
        order_id: The order.
    """
    print("deleting", order_id)
    return "deleted"


clerk = ToolCallingAgent(tools=[find_orders, refund, delete_order], model=OpenAIModel("gpt-5"))
print(clerk.run("Refund the late order."))
