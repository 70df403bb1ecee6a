"""The protocol's Python SDK as a client: calls the tools in CALLS, and prints what it got, a line each."""

import asyncio
import json
import os
import sys

import mcp_types as types
from mcp import Client, StdioServerParameters

way, *words = sys.argv[1:]


async def sampled(_context, _params):
    content = types.TextContent(type="text", text="sampled")
    return types.CreateMessageResult(role="assistant", model="none", content=content)


async def elicited(_context, _params):
    return types.ElicitResult(action="accept", content={"name": "Ann", "check": True})


async def roots(_context):
    return types.ListRootsResult(roots=[types.Root(uri=f"file://{os.environ['ROOT']}", name="root")])


def told(*parts):
    print(json.dumps(parts, default=lambda model: model.model_dump(mode="json", by_alias=True)), flush=True)


async def main():
    stdio = StdioServerParameters(command=words[0], args=words[1:], env=dict(os.environ)) if way == "stdio" else None
    answering = {"sampling_callback": sampled, "elicitation_callback": elicited, "list_roots_callback": roots}
    async with Client(stdio or words[0], cache=None, **answering) as client:
        tools = (await client.list_tools()).tools
        told("tools/list", tools)
        for name, arguments in json.loads(os.environ["CALLS"]) or [[tool.name, {}] for tool in tools]:
            steps = []

            async def step(*_):
                steps.append(1)

            try:
                answer = await client.call_tool(name, arguments, progress_callback=step)
            except Exception as error:  # An error of the protocol is an answer, too.
                answer = {"failed": str(error)}
            told(name, answer, len(steps))


asyncio.run(main())
