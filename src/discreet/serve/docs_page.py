"""``/docs``: the OpenAPI schema as a page, with a form to try each route.

The page is made from files of this package alone: Swagger UI would add 1.5 MB, and the pages of
FastAPI load theirs from another server. Its content security policy allows its own script, and
connections to its own service only.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader

from discreet.data.safe_io import content_policy

# what is shown of a long alternative, such as the forms of a history
_KINDS = {"object": "object", "array": "list", "integer": "integer", "number": "number"}


def docs_page(
    schema: dict[str, Any], address: str, item: str | None, token: bool = False
) -> tuple[str, str]:
    """Return the page and its content security policy.

    Parameters
    ----------
    schema : dict
        The OpenAPI schema of the service.
    address : str
        Where the service was reached, for the examples.
    item : str, optional
        Title of an item, for the examples.
    token : bool
        Whether requests need a token.
    """
    send = "curl -s"
    if token:
        send += ' -H "authorization: Bearer $DISCREET_TOKEN"'
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            made = _describe(schema, path, method, about, item)
            made["curl"] = f"{send} '{address.rstrip('/')}{made['curl']}"
            groups.setdefault(about["tags"][0], []).append(made)
    environment = Environment(loader=FunctionLoader(_part), autoescape=True, trim_blocks=True)
    style = _part("docs.css")
    script = _part("docs.js")
    page = environment.get_template("docs.html").render(
        info=schema["info"],
        address=address.rstrip("/"),
        groups=groups,
        token=token,
        style=style,
        script=script,
    )
    return page, content_policy(style, script).replace("connect-src 'none'", "connect-src 'self'")


def _describe(
    schema: dict[str, Any], path: str, method: str, about: dict[str, Any], item: str | None
) -> dict[str, Any]:
    """Return what the page shows of one route."""
    parameters = [
        {
            "name": entry["name"],
            "place": entry["in"],
            "required": entry.get("required", False),
            **_field(entry["schema"]),
        }
        for entry in about.get("parameters", ())
    ]
    body = None
    example = None
    if "requestBody" in about:
        body = _resolve(schema, about["requestBody"]["content"]["application/json"]["schema"])
        example = json.dumps(_example(body, item), indent=2, ensure_ascii=False)
        parameters += [
            {"name": name, "place": "body", "required": name in body["required"], **_field(entry)}
            for name, entry in body["properties"].items()
        ]
    curl = f"{path.replace('{item}', 'ITEM')}'"
    if example is not None:
        sent = json.dumps(json.loads(example), ensure_ascii=False).replace("'", "'\\''")
        curl += f" -H 'content-type: application/json' -d '{sent}'"
    return {
        "path": path,
        "method": method.upper(),
        "text": about.get("description", ""),
        "parameters": parameters,
        "example": example,
        "curl": curl,
    }


def _example(body: dict[str, Any], item: str | None) -> Any:
    """Return the example of a body, with an item of the model where there is one."""
    example = json.loads(json.dumps(body["examples"][0]))
    if item is not None and "history" in example:
        example["history"] = [item]
    if item is not None and "item" in example:
        example["item"] = item
    return example


def _resolve(schema: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in found:
        return dict(schema["components"]["schemas"][found["$ref"].rpartition("/")[2]])
    return found


def _field(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the type, the default and the description of a parameter."""
    default = schema.get("default")
    return {
        "kind": _kind(schema),
        "default": "" if default is None else json.dumps(default),
        "text": schema.get("description", ""),
    }


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        kinds = [_kind(one) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    kind = _KINDS.get(schema.get("type", ""), schema.get("type", "object"))
    if "minimum" in schema and "maximum" in schema:
        kind += f", {schema['minimum']:,} to {schema['maximum']:,}"
    return kind


def _part(name: str) -> str:
    file = resources.files("discreet.serve") / "page" / name
    return file.read_text(encoding="utf-8").rstrip("\n")
