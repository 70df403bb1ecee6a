"""Every client of Python, each driven by a scripted model that makes one call a turn of one tool."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from callgate import AsyncClient, CallRefused, Client, Replayed, anthropic, gated, openai

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Script = Iterator[dict[str, Any]]
    """The arguments of the call of each turn. What a test does between two turns, it does before it gives the next."""
    Player = Callable[[Client, str, Callable[..., Any], Script], list[str]]
    """Plays the script in a session with this tool, and gives what the model reads of each call."""


def gate(client: Client, session: str, tool: Callable[..., Any], script: Script) -> list[str]:
    return [client.gate(session).run(tool.__name__, args, tool).text for args in script]


def async_gate(client: Client, session: str, tool: Callable[..., Any], script: Script) -> list[str]:
    async def play() -> list[str]:
        async with AsyncClient(client.plane.settings.server) as aclient:
            return [(await aclient.gate(session).run(tool.__name__, args, tool)).text for args in script]

    return asyncio.run(play())


def gated_function(client: Client, session: str, tool: Callable[..., Any], script: Script) -> list[str]:
    run = gated(client.gate(session))(tool)

    def told(args: dict[str, Any]) -> str:
        try:
            value = run(**args)
            # Where another process, or a person, said what came of it.
            value = value.value if isinstance(value, Replayed) else value
            return json.dumps({"status": "success", "results": value})
        except CallRefused as refused:
            return refused.outcome.text
        except Exception as error:  # the tool's own
            return json.dumps({"status": "raised", "error_message": str(error)})

    return [told(args) for args in script]


def toolbox(client: Client, session: str, tool: Callable[..., Any], script: Script) -> list[str]:
    tools = client.gate(session).wrap([tool])
    return [tools.run(tool.__name__, args).text for args in script]


def anthropic_loop(client: Client, session: str, tool: Callable[..., Any], script: Script) -> list[str]:
    tools = client.gate(session).wrap([tool])
    messages: list[Any] = []
    for n, args in enumerate(script):
        use = {"type": "tool_use", "id": f"toolu_{session}_{n}", "name": tool.__name__, "input": args}
        messages.append({"role": "assistant", "content": [use]})
        messages += anthropic.tool_messages(tools, messages)
    return [block["content"] for answer in messages[1::2] for block in answer["content"]]


def chat_loop(client: Client, session: str, tool: Callable[..., Any], script: Script) -> list[str]:
    """Ids begin anew with each turn, as those of some servers do."""
    tools = client.gate(session).wrap([tool])
    messages: list[Any] = []
    for args in script:
        call = {"id": "call_0", "function": {"name": tool.__name__, "arguments": json.dumps(args)}}
        messages.append({"role": "assistant", "tool_calls": [call]})
        messages += openai.tool_messages(tools, messages)
    return [message["content"] for message in messages[1::2]]


def responses_loop(client: Client, session: str, tool: Callable[..., Any], script: Script) -> list[str]:
    tools = client.gate(session).wrap([tool])
    items: list[Any] = []
    for n, args in enumerate(script):
        call = {"type": "function_call", "call_id": f"call_{session}_{n}", "name": tool.__name__}
        items.append({**call, "arguments": json.dumps(args)})
        items += openai.tool_outputs(tools, items)
    return [item["output"] for item in items[1::2]]


def turns(tool: Callable[..., Any], script: Script) -> Any:
    """The script as the frameworks' scripted models take it."""
    for args in script:
        yield [(tool.__name__, args)]
    yield "Done."


def langchain(client: Client, session: str, tool: Callable[..., Any], script: Script, *, is_async: bool) -> list[str]:
    from langchain.agents import create_agent

    from callgate.langchain import CallgateMiddleware

    from .frameworks import test_langchain as framework

    model = framework.Scripted(messages=map(framework._message, turns(tool, script)), shown=[])
    agent = create_agent(model, [tool], middleware=[CallgateMiddleware(client)])
    answer = framework.ask(agent, framework.HELLO, session, is_async=is_async)
    return [text for texts in framework.seen(answer["messages"]) for text in texts]


def openai_agents(client: Client, session: str, tool: Callable[..., Any], script: Script) -> list[str]:
    from agents import Agent, Runner, function_tool

    from callgate.openai_agents import gated_tools

    from .frameworks.test_openai_agents import Scripted

    model = Scripted(turns(tool, script))
    tools = gated_tools([function_tool(tool)], client, session_id=session)
    asyncio.run(Runner.run(Agent("clerk", model=model, tools=tools), "Go.", max_turns=20))
    return [item["output"] for item in model.input if item.get("type") == "function_call_output"]


def pydantic_ai(client: Client, session: str, tool: Callable[..., Any], script: Script) -> list[str]:
    from pydantic_ai import Agent

    from callgate.pydantic_ai import CallgateCapability

    from .frameworks import test_pydantic_ai as framework

    capability = CallgateCapability(client, session_id=session)
    agent = Agent(framework.model(turns(tool, script)), tools=[tool], capabilities=[capability])
    result = asyncio.run(agent.run("Go."))
    return [text for texts in framework.seen(result.all_messages()) for text in texts]


ALIKE = {"AsyncGate", "toolbox", "openai chat", "openai responses", "langchain async"}
"""Clients that make their calls by the code of another one of the list."""

PLAYERS: dict[str, Player] = {
    "Gate": gate,
    "AsyncGate": async_gate,
    "@gated": gated_function,
    "toolbox": toolbox,
    "anthropic": anthropic_loop,
    "openai chat": chat_loop,
    "openai responses": responses_loop,
}
if find_spec("langchain"):
    PLAYERS["langchain"] = lambda *given: langchain(*given, is_async=False)
    PLAYERS["langchain async"] = lambda *given: langchain(*given, is_async=True)
if find_spec("agents"):
    PLAYERS["openai_agents"] = openai_agents
if find_spec("pydantic_ai"):
    PLAYERS["pydantic_ai"] = pydantic_ai
