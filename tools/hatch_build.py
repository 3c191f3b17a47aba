"""Builds the probe's jar into the wheel: a wheel without it cannot run jobs.

Hatchling calls this in every build. If the jar of a checkout is up to date nothing is compiled.
Otherwise the build needs a JDK, and PySpark, which it asks for.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProbeBuildHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    @property
    def sources(self) -> Path:
        return Path(self.root) / "probe"

    @property
    def jar(self) -> Path:
        return Path(self.root) / "src/trilithon/engines/spark/trilithon-probe.jar"

    def dependencies(self) -> list[str]:
        """PySpark, as the project needs it: the probe is compiled against its jars."""
        needed: list[str] = self.metadata.core.dependencies
        return [] if self._is_fresh() else [name for name in needed if name.startswith("pyspark")]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the probe. A checkout that is installed to work on builds it by `make`."""
        del build_data
        if version == "editable" or self._is_fresh():
            return
        # Both need nothing but the standard library.
        sys.path.insert(0, str(Path(self.root) / "src"))
        from trilithon.engines.spark import probe  # noqa: PLC0415
        from trilithon.errors import ProbeNotBuilt  # noqa: PLC0415

        try:
            probe.build(self.sources, self.jar)
        except ProbeNotBuilt as error:
            self.app.abort(
                f"No wheel without the probe, the Java part of Trilithon. {error.message}"
            )

    def _is_fresh(self) -> bool:
        """Whether the jar is younger than its sources; without sources, whether it is there."""
        if not self.jar.is_file():
            return False
        built_s = self.jar.stat().st_mtime
        return all(path.stat().st_mtime <= built_s for path in self.sources.rglob("src/**/*.java"))
