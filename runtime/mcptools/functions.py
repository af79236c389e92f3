"""Which functions of a source text are tools. Standard library only."""

import inspect
import sys
import types

# What tracebacks call the file, and the module of the functions.
FILE = "MCP_TOOLS_STRING"
MODULE = "mcp_tools"


class BadTools(Exception):
    """The source gives no tools; says why in one line."""


def public_functions(source):
    """The functions that a source text defines at its top, in the order in which it does, by name.

    Left out are names that start with an underscore, and what is imported. Raises BadTools.
    """
    module = types.ModuleType(MODULE)
    # Found by who looks up the annotations of its functions.
    sys.modules[MODULE] = module
    try:
        exec(compile(source, FILE, "exec"), module.__dict__)  # pylint: disable=exec-used # it is what it is for
    except Exception as error:
        raise BadTools(f"{type(error).__name__}: {error}") from error
    found = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == MODULE and not name.startswith("_")
    }
    if not found:
        raise BadTools("it defines no public function")
    return found
