"""Build hook: the wheel is for this machine's platform, and for every Python 3."""

from __future__ import annotations

import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformHook(BuildHookInterface):
    """Names the platform; auditwheel narrows that of Linux down to the C library that the programs need."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Runs before hatchling collects the files."""
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data.update(pure_python=False, tag=f"py3-none-{platform}")
