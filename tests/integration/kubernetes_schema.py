"""Checks Kubernetes documents against the models of the official Python client.

Strict, as `kubectl apply --validate=strict` is: unknown fields, wrong types, missing fields and
values that are not allowed are reported, each with its place.
"""

import re

from kubernetes import client


def snake(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def model_of(api_version, kind):
    """The model of a kind; None if this version of the API cannot create the kind."""
    group, _, version = api_version.rpartition("/")
    version = version[:1].upper() + version[1:]
    api = getattr(client, f"{(group or 'core').split('.')[0].capitalize()}{version}Api", None)
    made_by = (f"create_namespaced_{snake(kind)}", f"create_{snake(kind)}")
    if not any(hasattr(api, name) for name in made_by):
        return None
    return getattr(client, version + kind, None)


def problems(document):
    model = model_of(document.get("apiVersion", ""), document.get("kind", ""))
    if model is None:
        return [f"no kind {document.get('kind')} in {document.get('apiVersion')}"]
    return list(check(document, model.__name__, document["kind"]))


def check(value, kind, place):
    """Yields the problems of a value that should be of a kind, as the models name kinds."""
    scalars = {"str": str, "int": int, "bool": bool, "float": (int, float)}
    if kind in scalars:
        if not isinstance(value, scalars[kind]) or (kind != "bool" and isinstance(value, bool)):
            yield f"{place}: {value!r} is no {kind}"
    elif kind == "object":  # a number or a name, such as a port
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            yield f"{place}: {value!r} is neither number nor name"
    elif found := re.fullmatch(r"list\[(.*)\]", kind):
        if not isinstance(value, list):
            yield f"{place}: {value!r} is no list"
            return
        for number, item in enumerate(value):
            yield from check(item, found.group(1), f"{place}[{number}]")
    elif found := re.fullmatch(r"dict\(str, (.*)\)", kind):
        if not isinstance(value, dict):
            yield f"{place}: {value!r} is no map"
            return
        for key, item in value.items():
            yield from check(key, "str", f"{place}: key")
            yield from check(item, found.group(1), f"{place}.{key}")
    else:
        yield from check_model(value, getattr(client, kind), place)


def check_model(value, model, place):
    if not isinstance(value, dict):
        yield f"{place}: {value!r} is no map"
        return
    attributes = {name: attribute for attribute, name in model.attribute_map.items()}
    known = {}
    for name, item in value.items():
        if name not in attributes:
            yield f"{place}: no field {name} in {model.__name__}"
            continue
        known[attributes[name]] = item
        yield from check(item, model.openapi_types[attributes[name]], f"{place}.{name}")
    try:
        model(**known)  # raises for missing fields and for values that are not allowed
    except ValueError as error:
        yield f"{place}: {error}"
