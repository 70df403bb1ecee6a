"""An agent of Google's ADK. The session is ADK's session.

Needs `pip install ./clients/python google-adk` and a server: `callgate serve`.
"""

import asyncio

from callgate import Client, Gate, gated
from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner
from google.adk.tools import ToolContext
from google.genai.types import Content, Part

client = Client()


def gate(tool_context: ToolContext) -> Gate:
    return client.gate(tool_context.session.id)


tool = gated(gate, context="tool_context", call_id=lambda context: context.function_call_id, for_model=True)


@tool
def find_orders(query: str, tool_context: ToolContext, limit: int = 10) -> list[str]:
    """Finds orders by a word."""
    print("finding", query)
    return ["o-17"][:limit]


@tool
async def refund(order_id: str, tool_context: ToolContext) -> dict[str, str]:
    """Pays an order back."""
    print("refunding", order_id)
    return {"refunded": order_id}


@tool
def delete_order(order_id: str, tool_context: ToolContext) -> str:
    """Deletes an order."""
    print("deleting", order_id)
    return "deleted"


clerk = Agent(name="clerk", model="gemini-2.5-flash", tools=[find_orders, refund, delete_order])


async def main() -> None:
    runner = InMemoryRunner(clerk, app_name="shop")
    chat = await runner.session_service.create_session(app_name="shop", user_id="ada", session_id="chat-1")
    message = Content(role="user", parts=[Part(text="Refund the late order.")])
    async for event in runner.run_async(user_id=chat.user_id, session_id=chat.id, new_message=message):
        if event.is_final_response():
            print(event.content.parts[0].text)


if __name__ == "__main__":
    asyncio.run(main())
