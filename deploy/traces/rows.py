"""Rows of a trace for `callgate replay`, shared by the converters of this folder. README.md has the format."""

import datetime
import hashlib
import json
import re

SHOWN = 2000  # characters of a result; the digest covers all of it


def write(trace, calls, **session):
    """Prints the calls of one session in their order; `session` are fields that all of its rows have."""
    for seq, call in enumerate(calls):
        result = call.pop("result")
        if result is not None:
            digest = hashlib.sha256(result.encode("utf-8", "surrogatepass")).hexdigest()
            call |= {"result_sha256": digest, "result_len": len(result)}
        print(json.dumps({"trace": trace, "seq": seq, **session, **call, "result": result and result[:SHOWN]}))


def at(seconds):
    """A Unix time in RFC 3339."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat()


def text(content):
    """The text of a message's content: a string, or a list of blocks."""
    if isinstance(content, list):
        return "\n".join(block.get("text") or block.get("content") or f"[{block['type']}]" for block in content)
    return content or ""


def name(*parts):
    """A session id of at most 128 plain characters."""
    return re.sub(r"[^\w.:@-]+", "_", "-".join(str(part) for part in parts if part not in (None, "")), flags=re.A)[-128:]
