"""What somebody reads who has not installed a framework."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("adapter", "module", "extra"),
    [
        ("langchain", "langchain", "langchain"),
        ("langchain", "langchain_core", "langchain"),
        ("openai_agents", "agents", "openai-agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ],
)
def test_an_adapter_without_its_framework_names_the_extra(adapter: str, module: str, extra: str) -> None:
    script = f"import sys; sys.modules[{module!r}] = None; import callgate.{adapter}"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert last.endswith(f": install callgate with its extra, callgate[{extra}]")
