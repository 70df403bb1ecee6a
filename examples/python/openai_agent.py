"""An agent of the OpenAI Agents SDK whose tool calls pass a gate; what a person must approve interrupts the run.

Needs `pip install './clients/python[openai-agents]'` and a server: `callgate serve`.
"""

import asyncio
import os

from agents import Agent, Runner, function_tool

from callgate.openai_agents import answer, gated_tools


@function_tool
def refund(order_id: str) -> str:
    """Pays an order back."""
    return f"{order_id} was refunded"


async def main() -> None:
    tools = gated_tools([refund], session_id="example-openai-agents", interruptions=True)
    agent = Agent("Clerk", model=os.environ.get("MODEL", "gpt-5"), tools=tools)
    result = await Runner.run(agent, "Refund order o-17.")
    while result.interruptions:
        state = result.to_state()
        for item in result.interruptions:
            await answer(state, item, approve=input(f"{item.name} {item.arguments} [y/n] ") == "y")
        result = await Runner.run(agent, state)
    print(result.final_output)


asyncio.run(main())
