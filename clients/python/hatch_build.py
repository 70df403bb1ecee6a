"""Build hook: generates callgate.v1, the messages and stubs of the contract, from proto/."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ContractHook(BuildHookInterface):
    """Gives a wheel the generated package, and an sdist proto/ and the changelog.

    An editable build writes the package to src/.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Runs before hatchling collects the files."""
        root = Path(self.root)
        proto = _find_proto(root)
        if self.target_name == "sdist":
            if proto.parent != root:  # else hatchling collects it with the other files
                build_data["force_include"][str(proto)] = "proto"
                build_data["force_include"][str(proto.parent / "CHANGELOG.md")] = "CHANGELOG.md"
        elif version == "editable":
            _generate(proto, root / "src")
        else:
            self._out = tempfile.TemporaryDirectory()
            _generate(proto, Path(self._out.name))
            build_data["force_include"][f"{self._out.name}/callgate/v1"] = "callgate/v1"
            if sys.version_info >= (3, 13):
                # The generators for these versions write code that needs the newer runtimes of `dependencies`.
                build_data["tag"] = f"py3{sys.version_info.minor}-none-any"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Runs when the wheel is written."""
        if hasattr(self, "_out"):
            self._out.cleanup()


def _find_proto(root: Path) -> Path:
    """Finds proto/ in an unpacked sdist, or in a checkout of the repository."""
    for proto in (root / "proto", root.parent.parent / "proto"):
        if (proto / "callgate/v1").is_dir():
            return proto
    raise FileNotFoundError(
        f"callgate.v1 cannot be generated: there is no proto/callgate/v1 in {root} or in {root.parent.parent}. "
        "Build from a checkout of the whole repository, or from an sdist."
    )


def _generate(proto: Path, out: Path) -> None:
    """Writes the package callgate.v1 to a folder."""
    contract, package = proto / "callgate/v1", out / "callgate/v1"
    shutil.rmtree(package, ignore_errors=True)
    options = ("python_out=", "grpc_python_out=", "mypy_out=quiet:", "mypy_grpc_out=quiet:")
    outputs = [f"--{option}{out}" for option in options]
    sources = sorted(map(str, contract.glob("*.proto")))
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{proto}", *outputs, *sources], check=True)  # noqa: S603
    for empty in package.glob("types_pb2_grpc.py*"):  # a file without a service
        empty.unlink()
    (package / "__init__.py").touch()
    shutil.copy(contract / "callgate_grpc_service_config.json", package)
