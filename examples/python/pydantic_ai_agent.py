"""An agent of Pydantic AI whose tool calls pass a gate.

Needs `pip install './clients/python[pydantic-ai]' 'pydantic-ai-slim[openai]'` and a server: `callgate serve`.
"""

import os

from pydantic_ai import Agent

from callgate.pydantic_ai import CallgateCapability

agent = Agent(os.environ.get("MODEL", "openai:gpt-5"), capabilities=[CallgateCapability()])


@agent.tool_plain
def refund(order_id: str) -> str:
    """Pays an order back."""
    return f"{order_id} was refunded"


print(agent.run_sync("Refund order o-17.").output)
