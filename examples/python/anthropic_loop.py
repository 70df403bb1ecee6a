"""A loop of one's own over Anthropic's Messages API whose tool calls pass a gate.

Needs `pip install ./clients/python anthropic` and a server: `callgate serve`.
"""

import os

from anthropic import Anthropic

from callgate import Gate
from callgate.anthropic import tool_messages


def refund(order_id: str) -> str:
    """Pays an order back."""
    return f"{order_id} was refunded"


SCHEMAS = [
    {
        "name": "refund",
        "description": "Pays an order back.",
        "input_schema": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
    }
]

model, tools = Anthropic(), Gate("example-anthropic").wrap([refund])
messages = [{"role": "user", "content": "Refund order o-17."}]
while not tools.is_over:
    reply = model.messages.create(
        model=os.environ.get("MODEL", "claude-opus-4-5"),
        max_tokens=1000,
        messages=messages,
        tools=tools.schemas(SCHEMAS),
        tool_choice={"type": "none" if tools.tools_disabled else "auto"},
    )
    messages.append({"role": "assistant", "content": reply.content})
    if not (answers := tool_messages(tools, messages, reply)):
        break
    messages += answers
print(reply.content[-1].text)
