"""Compares answers with the OpenAPI document. It allows more fields than it names, for versions to
come; here an answer has the fields that are named, and no others.
"""

from copy import deepcopy
from typing import Any

import jsonschema_rs  # Schemathesis brings it.

from trilithon.service.api import document, routed_app

Violation = jsonschema_rs.ValidationError


def closed(schema: Any) -> Any:
    """A schema in which an object has the fields that are named, and no others."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


class Document:
    """The OpenAPI document, as something that answers are compared with."""

    def __init__(self) -> None:
        self.data = document(routed_app())
        self._components = closed(deepcopy(self.data["components"]))

    def check(self, schema: Any, answer: Any) -> None:
        """Fails if the answer does not have the shape."""
        whole = {**closed(deepcopy(schema)), "components": self._components}
        jsonschema_rs.Draft202012Validator(whole).validate(answer)

    def answers(self, method: str, path: str, status: int = 200) -> Any:
        return self.data["paths"][path][method]["responses"][str(status)]["content"]

    def check_answer(self, method: str, path: str, answer: Any, status: int = 200) -> None:
        self.check(self.answers(method, path, status)["application/json"]["schema"], answer)
