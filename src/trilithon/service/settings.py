"""Defines the settings of the service, in a file of the administrator: tenants, limits, hooks."""

import os
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from trilithon.engines.application_names import APPLICATIONS
from trilithon.errors import InvalidSetting
from trilithon.model.validation import NAME
from trilithon.service.access.rates import BURST, PER_S
from trilithon.service.border import MAX_BODY_BYTES
from trilithon.service.monitor.webhooks import Webhook
from trilithon.service.private_files import check_private, read_secret
from trilithon.spec.yaml_reader import read_yaml_file

Prefix = Annotated[str, Field(min_length=1, max_length=249, pattern=r"^[A-Za-z0-9._-]+$")]


def _is_full(folder: str) -> str:
    if folder[:1] != "/" or os.path.normpath(folder) != folder or folder == "/":
        raise ValueError(f"{folder!r} is not the full name of a folder")
    return folder


Folder = Annotated[str, AfterValidator(_is_full)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TenantSettings(_Section):
    """What jobs of a tenant may use. A topic is allowed if it begins with one of the prefixes."""

    read_topics: tuple[Prefix, ...] = Field((), description="prefixes of topics to read")
    write_topics: tuple[Prefix, ...] = Field(
        (), description="prefixes of topics to write, dead letters included"
    )
    workload_functions: bool | None = Field(
        None, description="whether expressions may call `work` and `wait`; default: that of all"
    )
    python_folders: tuple[Folder, ...] = Field(
        (), description="folders of Python jobs that the engine host may run for the tenant"
    )
    kafka_settings_file: Path | None = Field(
        None, description="a private file of key=value lines: the tenant's own Kafka principal"
    )


class RequestSettings(_Section):
    """Limits of requests."""

    per_s: float = Field(PER_S, gt=0, description="requests per second and token")
    burst: float = Field(BURST, ge=1, description="requests that a token has in reserve")
    body_bytes: int = Field(MAX_BODY_BYTES, ge=1024, le=64 << 20, description="of one body")


class WebhookSettings(_Section):
    """Where alerts are sent. The secret that signs them is in a file of its own."""

    url: str
    secret_file: Path | None = None

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.password:
            raise ValueError("write http:// or https://, without a password")
        return url


class ServiceSettings(_Section):
    """All settings. Without `tenants` every tenant may use every topic; with it, only those that
    are listed may submit jobs.
    """

    tenants: dict[str, TenantSettings] | None = None
    applications: dict[str, tuple[str, ...]] = Field(
        {}, description="with --per-tenant: tenants that share an application, by its name"
    )
    requests: RequestSettings = RequestSettings()
    workload_functions: bool | None = Field(
        None,
        description="whether expressions of tenants that do not say otherwise may call `work` and "
        "`wait`, which only burn time; default: only without `tenants`, for the owner alone",
    )
    python_folders: tuple[Folder, ...] = Field(
        (), description="folders of Python jobs that the engine host may run for every tenant"
    )
    webhooks: tuple[WebhookSettings, ...] = ()

    @field_validator("tenants")
    @classmethod
    def _are_names(
        cls, tenants: dict[str, TenantSettings] | None
    ) -> dict[str, TenantSettings] | None:
        for name in tenants or ():
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot be a tenant")
        return tenants

    @field_validator("applications")
    @classmethod
    def _are_disjoint(cls, applications: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        seen: dict[str, str] = {}
        for application, tenants in applications.items():
            for name in (application, *tenants):
                if not NAME.fullmatch(name):
                    raise ValueError(f"{name!r} cannot be an application or a tenant")
            for tenant in tenants:
                if seen.setdefault(tenant, application) != application:
                    raise ValueError(f"{tenant} is in {seen[tenant]} and in {application}")
                if tenant != application and tenant in applications:
                    raise ValueError(f"{tenant} is in {application}, and an application itself")
        return applications

    def application_of(self, tenant: str) -> str:
        """The application of a tenant: the one that names it, or one of its own name."""
        for application, tenants in self.applications.items():
            if tenant in tenants:
                return application
        return tenant

    @property
    def application_count(self) -> int:
        """How many applications there will be: those of the tenants that may submit jobs. Without
        `tenants` nobody knows.
        """
        if self.tenants:
            return len({self.application_of(tenant) for tenant in self.tenants})
        return max(APPLICATIONS, len(self.applications))

    @classmethod
    def of(cls, data: Any) -> "ServiceSettings":
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            raise InvalidSetting(
                f"The service's settings are not valid at {place}: {first['msg']}.",
                "docs/concepts/security.md shows the file.",
            ) from None

    @classmethod
    def read(cls, file: Path | None) -> "ServiceSettings":
        return cls() if file is None else cls.of(read_yaml_file(file).data)

    def workload_functions_of(self, tenant: str, *, owner_only: bool) -> bool:
        """Whether jobs of a tenant may call `work` and `wait`. Where no setting says so, they may
        if nobody but the owner of the state folder can submit jobs: that is the administrator.
        """
        own = (self.tenants or {}).get(tenant)
        for setting in (None if own is None else own.workload_functions, self.workload_functions):
            if setting is not None:
                return setting
        return self.tenants is None and owner_only

    def kafka_files(self) -> dict[str, Path]:
        """The files with the Kafka settings of tenants that have a principal of their own. One
        that others can read is refused.
        """
        files = {}
        for name, tenant in (self.tenants or {}).items():
            if (file := tenant.kafka_settings_file) is not None:
                check_private(file, f"kafka_settings_file of {name}")
                files[name] = file.resolve()
        return files

    def python_folders_of(self, tenant: str) -> tuple[str, ...]:
        """The folders whose Python files the engine host may run for a tenant."""
        own = (self.tenants or {}).get(tenant)
        return (*self.python_folders, *(() if own is None else own.python_folders))

    def signed_webhooks(self) -> tuple[Webhook, ...]:
        """The webhooks with their secrets. A secret file that others can read is refused."""
        return tuple(
            Webhook(
                one.url,
                "" if one.secret_file is None else read_secret(one.secret_file, "secret_file"),
            )
            for one in self.webhooks
        )
