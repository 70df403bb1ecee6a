"""An agent of Strands. The session is that of the agent's session manager.

Needs `pip install ./clients/python 'strands-agents[openai]'` and a server: `callgate serve`.
"""

import tempfile

from callgate import Client, Gate, gated
from strands import Agent, ToolContext, tool
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager

client = Client()


def gate(tool_context: ToolContext) -> Gate:
    return client.gate(tool_context.invocation_state["session_id"])


behind_gate = gated(gate, context="tool_context", for_model=True)


@tool(context=True)
@behind_gate
def find_orders(query: str, tool_context: ToolContext, limit: int = 10) -> list[str]:
    """Finds orders by a word.

    Args:
        query: The word.
        limit: How many there may be.
    """
    print("finding", query)
    return ["o-17"][:limit]


@tool(context=True)
@behind_gate
async def refund(order_id: str, tool_context: ToolContext) -> dict[str, str]:
    """Pays an order back.

    Args:
        order_id: The order.
    """
    print("refunding", order_id)
    return {"refunded": order_id}


@tool(context=True)
@behind_gate
def delete_order(order_id: str, tool_context: ToolContext) -> str:
    """Deletes an order.

    Args:
        order_id: The order.
    """
    print("deleting", order_id)
    return "deleted"


with tempfile.TemporaryDirectory() as folder:
    manager = FileSessionManager(session_id="chat-1", storage_dir=folder)
    tools = [find_orders, refund, delete_order]
    clerk = Agent(model=OpenAIModel(model_id="gpt-5"), tools=tools, session_manager=manager, callback_handler=None)
    print(clerk("Refund the late order.", invocation_state={"session_id": manager.session_id}))
