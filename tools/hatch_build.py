"""Builds the probe's jar into the wheel: a wheel without it cannot run jobs.

Hatchling calls this in every build. If the jar of a checkout is up to date nothing is compiled.
Otherwise the build needs a JDK, and PySpark: the one that is installed beside the interpreter if it
is of the right version, else it asks for it, and to fetch and to build that takes minutes.
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _probe_module(root: Path) -> Any:
    """What builds the probe; it needs nothing but the standard library."""
    sys.path.insert(0, str(root / "src"))
    from trilithon.engines.spark import probe  # noqa: PLC0415

    return probe


def _is_installed(requirement: str) -> bool:
    """Whether `pyspark==X` is installed beside this interpreter, though a build that is isolated
    cannot import it.
    """
    home = _probe_module(Path(__file__).resolve().parent.parent).find_pyspark()
    version = requirement.partition("==")[2]
    return home is not None and (home.parent / f"pyspark-{version}.dist-info").is_dir()


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
        spark = [name for name in needed if name.startswith("pyspark")]
        return [] if self._is_fresh() or all(map(_is_installed, spark)) else spark

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the probe. A checkout that is installed to work on builds it by `make`."""
        del build_data
        if version == "editable" or self._is_fresh():
            return
        probe = _probe_module(Path(self.root))
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
