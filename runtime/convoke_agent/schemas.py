"""Whether the schema of a tool's arguments is one. Servers write what they like, and one bad schema would fail every question."""

MAX_LEVELS = 32
# Where a schema has schemas by their names, and where it has a list of them.
BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties")


def is_sound(schema):
    """Whether it is the schema of an object, in which all that holds schemas has the form that it must have."""
    return isinstance(schema, dict) and schema.get("type", "object") == "object" and _is_schema(schema, MAX_LEVELS)


def _is_schema(schema, levels):
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict) or levels == 0:
        return False
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return False
    if not isinstance(schema.get("$ref", ""), str):
        return False
    inner = []
    for key in BY_NAME:
        if not isinstance(schema.get(key, {}), dict):
            return False
        inner += schema.get(key, {}).values()
    for key in LISTS:
        if not isinstance(schema.get(key, []), list):
            return False
        inner += schema.get(key, [])
    inner += [schema[key] for key in SINGLE if key in schema]
    # Before 2020 a list of schemas was allowed.
    items = schema.get("items", True)
    inner += items if isinstance(items, list) else [items]
    return all(_is_schema(one, levels - 1) for one in inner)
