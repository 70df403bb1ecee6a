"""An agent of LlamaIndex. The session is that of its memory.

Needs `pip install ./clients/python llama-index-core llama-index-llms-openai` and a server: `callgate serve`.
"""

import asyncio

from callgate import Gate, gated
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import Memory
from llama_index.llms.openai import OpenAI

memory = Memory.from_defaults(session_id="chat-1")
tool = gated(Gate(memory.session_id), for_model=True)


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
    clerk = FunctionAgent(tools=[find_orders, refund, delete_order], llm=OpenAI("gpt-5"))
    print(await clerk.run("Refund the late order.", memory=memory))


if __name__ == "__main__":
    asyncio.run(main())
