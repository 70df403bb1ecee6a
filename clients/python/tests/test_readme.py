"""The README's program, as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plane import Server

README = Path(__file__).parents[1] / "README.md"


def test_the_first_program_runs_as_it_stands(server: Server) -> None:
    text = README.read_text()
    program = re.search(r"```python\n(.*?)```", text, re.S)
    printed = re.search(r"It prints `(.*?)`", text)
    assert program
    assert printed
    env = {**os.environ, "CALLGATE_SERVER": f"http://{server.address}"}
    ended = subprocess.run([sys.executable, "-c", program[1]], env=env, capture_output=True, text=True, timeout=60)
    assert ended.stdout == f"{printed[1]}\n", ended.stderr
    # With the same call_id it is the same call.
    again = subprocess.run([sys.executable, "-c", program[1]], env=env, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0, again.stderr
