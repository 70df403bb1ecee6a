"""An agent of LangChain whose tool calls pass a gate; what a person must approve interrupts the graph.

Needs `pip install './clients/python[langchain]' langchain-openai` and a server: `callgate serve`.
"""

import os

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from callgate.langchain import CallgateMiddleware


def refund(order_id: str) -> str:
    """Pays an order back."""
    return f"{order_id} was refunded"


model = init_chat_model(os.environ.get("MODEL", "openai:gpt-5"))
agent = create_agent(model, [refund], middleware=[CallgateMiddleware()], checkpointer=InMemorySaver())
thread = {"configurable": {"thread_id": "example-langgraph"}}
answer = agent.invoke({"messages": [("user", "Refund order o-17.")]}, thread)
while asked := answer.get("__interrupt__"):
    approve = input(f"{asked[0].value['message']} {asked[0].value['args']} [y/n] ") == "y"
    answer = agent.invoke(Command(resume=approve), thread)
print(answer["messages"][-1].text)
