"""What a model is told where the plane's own words are not at hand, and hints put beside its words."""

from __future__ import annotations

import json

UNAVAILABLE = "callgate_unavailable"
_ARGUMENTS_MAX = 2000
FULL = "the outcomes of too many earlier calls wait to be stored"


def with_hints(text: str, *hints: str, is_json: bool = True) -> str:
    """The text with each hint once: in a JSON object as its member `warning`, else after it.

    The member is put in as text, so that results stay byte for byte.
    """
    # The plane's JSON leaves characters as they are, and so does this: what it holds already is found again.
    new = [hint for hint in dict.fromkeys(hints) if hint and _quoted(hint)[1:-1] not in text]
    if not new:
        return text
    said = " ".join(new)
    if not is_json or not text.endswith("}"):
        return f"{text}\n\n{said}" if text else said
    comma = "" if text == "{}" else ","
    return f'{text[:-1]}{comma}"warning":{_quoted(said)}}}'


def approved(args: str) -> str:
    """For a call that was executed with an approver's arguments instead of the model's."""
    shown = args if len(args) <= _ARGUMENTS_MAX else f"{args[:_ARGUMENTS_MAX]}… (cut)"
    return (
        f"An approver replaced the arguments of this call, and this is the outcome with those: {shown}. "
        "The call with your arguments was not executed. Do not make it again."
    )


def unavailable(tool: str, why: str) -> str:
    """For a call that was not run since nobody could be asked."""
    return _quoted(
        {
            "status": UNAVAILABLE,
            "message": f"{tool} was not run, and nothing was done: the service that decides whether tool calls may run "
            f"gives no answer now ({why}). Go on without this call, or tell the user that it was not made.",
            "retryable": False,
            "next_action_hint": "Go on without this call, or tell the user that it was not made.",
        }
    )


def unreported(tool: str) -> str:
    """For a call that has run already, of which the plane has not heard yet."""
    return _quoted(
        {
            "status": UNAVAILABLE,
            "message": f"{tool} was not run again: this call has run before, and the service that keeps its result "
            "gives no answer now. Do not repeat it: go on without its result, or tell the user.",
            "retryable": False,
            "next_action_hint": "Do not repeat it: go on without its result, or tell the user.",
        }
    )


def failed(message: str) -> str:
    """For a call that failed, while nobody could be told."""
    return _quoted({"status": "error", "error_message": message})


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
