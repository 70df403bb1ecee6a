"""An agent of AG2. The session is that of its stream, which is a conversation.

Needs `pip install ./clients/python 'ag2[openai]'` and a server: `callgate serve`.
"""

import asyncio
import uuid

from ag2 import Agent, Context, MemoryStream
from ag2.config import OpenAIConfig
from callgate import Client, Gate, gated

client = Client()
CHAT = uuid.UUID("7d5a3f0e-0000-4000-8000-000000000001")


def gate(context: Context) -> Gate:
    return client.gate(str(context.stream.id))


tool = gated(gate, context="context", for_model=True)


@tool
def find_orders(query: str, context: Context, limit: int = 10) -> list[str]:
    """Finds orders by a word."""
    print("finding", query)
    return ["o-17"][:limit]


@tool
async def refund(order_id: str, context: Context) -> dict[str, str]:
    """Pays an order back."""
    print("refunding", order_id)
    return {"refunded": order_id}


@tool
def delete_order(order_id: str, context: Context) -> str:
    """Deletes an order."""
    print("deleting", order_id)
    return "deleted"


async def main() -> None:
    tools = [find_orders, refund, delete_order]
    clerk = Agent("clerk", "You work in a shop.", config=OpenAIConfig("gpt-5"), tools=tools)
    reply = await clerk.ask("Refund the late order.", stream=MemoryStream(id=CHAT))
    print(reply.body)


if __name__ == "__main__":
    asyncio.run(main())
