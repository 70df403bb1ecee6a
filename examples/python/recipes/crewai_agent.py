"""A crew of CrewAI. The session is the crew's run, since CrewAI has no conversations.

Needs `pip install ./clients/python crewai` and a server: `callgate serve`.
"""

import uuid

from callgate import Gate, gated
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

gate = Gate(f"crew-{uuid.uuid4()}")


@tool
@gated(gate, for_model=True)
def find_orders(query: str, limit: int = 10) -> list[str]:
    """Finds orders by a word."""
    print("finding", query)
    return ["o-17"][:limit]


@tool
@gated(gate, for_model=True)
async def refund(order_id: str) -> dict[str, str]:
    """Pays an order back."""
    print("refunding", order_id)
    return {"refunded": order_id}


@tool
@gated(gate, for_model=True)
def delete_order(order_id: str) -> str:
    """Deletes an order."""
    print("deleting", order_id)
    return "deleted"


tools = [find_orders, refund, delete_order]
clerk = Agent(role="clerk", goal="Care for orders.", backstory="A shop.", llm=LLM("openai/gpt-5"), tools=tools)
task = Task(description="Refund the late order.", expected_output="One sentence.", agent=clerk)
# CrewAI's own cache would answer a repetition before callgate sees it.
print(Crew(agents=[clerk], tasks=[task], cache=False).kickoff())
