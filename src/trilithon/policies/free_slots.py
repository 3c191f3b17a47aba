"""Keeps the slots that jobs may still take in a round, of the cluster and of each tenant."""

import math
from dataclasses import dataclass

from trilithon.policies.scene import Scene


@dataclass
class FreeSlots:
    """What is left. Where there is no limit it is infinite; a tenant without a quota is absent."""

    cluster: float
    tenants: dict[str, float]

    @classmethod
    def of(cls, scene: Scene) -> "FreeSlots":
        free, quotas = scene.cluster.slots_free, scene.cluster.quotas
        return cls(
            math.inf if free is None else max(0, free),
            {tenant: max(0, quota - scene.used_by(tenant)) for tenant, quota in quotas.items()},
        )

    def of_tenant(self, tenant: str) -> float:
        return self.tenants.get(tenant, math.inf)

    def take(self, tenant: str, count: int) -> None:
        self.cluster -= count
        if tenant in self.tenants:
            self.tenants[tenant] -= count
