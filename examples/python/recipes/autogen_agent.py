"""An agent of AutoGen's AgentChat. The session is yours, since an agent of AutoGen has no id of its conversation.

Needs `pip install ./clients/python autogen-agentchat 'autogen-ext[openai]'` and a server: `callgate serve`.
"""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from callgate import Gate, gated

tool = gated(Gate("chat-1"), for_model=True)


@tool
def find_orders(query: str, limit: int = 10) -> list[str]:
    """Finds orders by a word."""
    print("finding", query)
    return ["o-17"][:limit]


@tool
async def refund(order_id: str) -> dict[str, str]:
    """Pays an order back."""
    print("refunding", order_id)
    return {"refunded": order_id}


@tool
def delete_order(order_id: str) -> str:
    """Deletes an order."""
    print("deleting", order_id)
    return "deleted"


async def main() -> None:
    model = OpenAIChatCompletionClient(model="gpt-4o")
    tools = [find_orders, refund, delete_order]
    clerk = AssistantAgent("clerk", model, tools=tools, max_tool_iterations=10)
    result = await clerk.run(task="Refund the late order.")
    print(result.messages[-1].content)


if __name__ == "__main__":
    asyncio.run(main())
