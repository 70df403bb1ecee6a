"""What an adapter says where its framework is not installed."""

from __future__ import annotations


def missing(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Names the extra: the package that a module comes in may have another name (`agents` is of openai-agents)."""
    return ModuleNotFoundError(f"{error}: install callgate with its extra, callgate[{extra}]", name=error.name)
