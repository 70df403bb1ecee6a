"""The schemas of tools as a model is to see them, in the shapes of OpenAI, Anthropic and MCP.

Where the policy wants a justification, the model is given a parameter for it; the argument that takes the idempotency
key is hidden; and a model may be given a parameter to say that it means a repetition. What was added is taken out of
the arguments again before anything is executed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._call import Args, ToolOptions
    from .v1.gate_service_pb2 import ToolDescription

JUSTIFICATION = "justification"
_JUSTIFICATION_BYTES_MAX = 2000
_JUSTIFICATION_TEXT = "Why this call is needed now, in one or two sentences, for the person who may have to approve it."
_REPEAT_TEXT = "True only if an identical call was made before and is meant to be made once more."


@dataclass(frozen=True)
class Added:
    """The parameters that a tool's schema was given; empty: none.

    Attributes:
        justification: The name of the one for the justification.
        repeat: The name of the one by which a repetition is meant.
    """

    justification: str = ""
    repeat: str = ""

    def taken(self, args: Args) -> tuple[Args, ToolOptions]:
        """The arguments without them, and what they said, as `Gate.run` takes it.

        Arguments that cannot be read stay as they are: the plane tells the model what is wrong with them.
        """
        options: ToolOptions = {"justification_parameter": self.justification, "repeat_parameter": self.repeat}
        names = {self.justification, self.repeat} - {""}
        read = _read(args)
        if read is None or not names & read.keys():
            return args, options
        justification, repeat = read.get(self.justification), read.get(self.repeat)
        if isinstance(justification, str):
            cut = justification.encode(errors="replace")[:_JUSTIFICATION_BYTES_MAX]
            options["justification"] = cut.decode(errors="ignore").replace("\0", " ")
        options["repeat_intended"] = repeat is True
        left = {name: value for name, value in read.items() if name not in names}
        return (json.dumps(left, ensure_ascii=False) if isinstance(args, str) else left), options


def offered(
    parameters: Mapping[str, Any], tool: ToolDescription, *, repeat_parameter: str = "", strict: bool = False
) -> tuple[dict[str, Any], Added]:
    """The JSON Schema of a tool's arguments as the model is to see it, and what was added.

    A parameter that the tool has itself is left alone. A strict schema stays strict: everything is required, and what
    may be left out may be null.
    """
    properties: dict[str, Any] = dict(parameters.get("properties") or {})
    required: list[str] = list(parameters.get("required") or [])
    hidden = tool.idempotency_argument
    properties.pop(hidden, None)
    required = [name for name in required if name != hidden]
    justification = JUSTIFICATION if tool.needs_justification and JUSTIFICATION not in properties else ""
    if justification:
        properties[justification] = {"type": "string", "description": _JUSTIFICATION_TEXT}
        required.append(justification)
    repeat = repeat_parameter if repeat_parameter not in properties else ""
    if repeat:
        properties[repeat] = {"type": ["boolean", "null"] if strict else "boolean", "description": _REPEAT_TEXT}
        if strict:
            required.append(repeat)
    schema = {"type": "object", **parameters, "properties": properties}
    if required or "required" in parameters:
        schema["required"] = required
    return schema, Added(justification, repeat)


def name_of(schema: Mapping[str, Any]) -> str:
    """The tool's name, in whatever shape; empty for what is no function with a schema of its own."""
    place = _place(schema)
    return str(place[0].get("name") or "") if place else ""


def adapted(
    schema: Mapping[str, Any], tool: ToolDescription, *, repeat_parameter: str = ""
) -> tuple[dict[str, Any], Added]:
    """A tool of OpenAI (chat or responses), Anthropic or MCP as the model is to see it, and what was added."""
    place = _place(schema)
    if place is None:
        return dict(schema), Added()
    function, key = place
    strict = bool(function.get("strict"))
    parameters, added = offered(function.get(key) or {}, tool, repeat_parameter=repeat_parameter, strict=strict)
    changed = {**function, key: parameters}
    return ({**schema, "function": changed} if function is not schema else changed), added


def _place(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], str] | None:
    """Where name and schema stand, and by which key the schema does."""
    function = schema.get("function")
    if isinstance(function, Mapping):
        return function, "parameters"
    for key in ("input_schema", "inputSchema", "parameters"):
        if key in schema:
            return schema, key
    return (schema, "parameters") if schema.get("type") == "function" else None


def _read(args: Args) -> dict[str, Any] | None:
    """The arguments, if nothing would be lost by reading and writing them."""
    if not isinstance(args, str):
        return dict(args)
    lossless = True

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal lossless
        made = dict(found)
        lossless = lossless and len(made) == len(found)
        return made

    def number(text: str) -> float:
        nonlocal lossless
        lossless = lossless and math.isfinite(float(text))
        return float(text)

    try:
        read = json.loads(args or "{}", object_pairs_hook=pairs, parse_float=number)
    except (ValueError, RecursionError):
        return None
    return read if lossless and isinstance(read, dict) else None
