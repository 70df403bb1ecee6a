"""A loop of one's own over OpenAI's Responses whose tool calls pass a gate.

Needs `pip install ./clients/python openai` and a server: `callgate serve`.
"""

import os

from openai import OpenAI

from callgate import Gate
from callgate.openai import tool_outputs


def refund(order_id: str) -> str:
    """Pays an order back."""
    return f"{order_id} was refunded"


SCHEMAS = [
    {
        "type": "function",
        "name": "refund",
        "description": "Pays an order back.",
        "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
    }
]

model, tools = OpenAI(), Gate("example-openai").wrap([refund])
items = [{"role": "user", "content": "Refund order o-17."}]
while not tools.is_over:
    response = model.responses.create(
        model=os.environ.get("MODEL", "gpt-5"),
        input=items,
        tools=tools.schemas(SCHEMAS),
        tool_choice="none" if tools.tools_disabled else "auto",
    )
    items += response.output
    if not (outputs := tool_outputs(tools, items, response)):
        break
    items += outputs
print(response.output_text)
