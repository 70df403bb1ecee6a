"""A graph of LangGraph with its own `ToolNode`. The session is the thread.

`callgate.langchain` does more for `create_agent`. Needs `pip install ./clients/python langgraph langchain-openai` and a
server: `callgate serve`.
"""

from callgate import Client, Gate, gated
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime, tools_condition

client = Client()


def gate(runtime: ToolRuntime) -> Gate:
    return client.gate(runtime.config["configurable"]["thread_id"])


def call_id(runtime: ToolRuntime) -> str:
    """Unique also where a model's ids begin anew with each message; the same where a node runs again."""
    return f"{runtime.state['messages'][-1].id}/{runtime.tool_call_id}"


tool = gated(gate, context="runtime", call_id=call_id, for_model=True)


@tool
def find_orders(query: str, runtime: ToolRuntime, limit: int = 10) -> list[str]:
    """Finds orders by a word."""
    print("finding", query)
    return ["o-17"][:limit]


@tool
async def refund(order_id: str, runtime: ToolRuntime) -> dict[str, str]:
    """Pays an order back."""
    print("refunding", order_id)
    return {"refunded": order_id}


@tool
def delete_order(order_id: str, runtime: ToolRuntime) -> str:
    """Deletes an order."""
    print("deleting", order_id)
    return "deleted"


tools = [find_orders, refund, delete_order]
model = ChatOpenAI(model="gpt-5").bind_tools(tools)
graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
graph.add_node("tools", ToolNode(tools))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
clerk = graph.compile(checkpointer=InMemorySaver())


async def main() -> None:
    config = {"configurable": {"thread_id": "chat-1"}}
    state = await clerk.ainvoke({"messages": [("user", "Refund the late order.")]}, config)
    print(state["messages"][-1].content)


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
