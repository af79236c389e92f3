"""Which model names pass: those of the list, and what its patterns (`openai/*`, `*`) match."""

import re

# No address can be written with it: some of LiteLLM's providers take an address for a model and send the key there.
NAME = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9._:@+/-]{0,254}")


class Models:
    """The models of a list. A label is the name of the list's entry: there are not more of them than entries."""

    def __init__(self, names):
        self.exact = frozenset(name for name in names if "*" not in name)
        self.patterns = []
        # The longest first: it says the most.
        for name in sorted((name for name in set(names) if "*" in name), key=lambda name: (-len(name), name)):
            expression = ".*".join(re.escape(part) for part in name.split("*"))
            self.patterns.append((re.compile(expression), name))

    def label(self, model):
        """The list's entry for what a request calls its model, or None when there is none."""
        if not isinstance(model, str):
            return None
        if model in self.exact:
            return model
        if not NAME.fullmatch(model) or any(part in model.lower() for part in ("//", "..", "http:", "https:")):
            return None
        return next((name for pattern, name in self.patterns if pattern.fullmatch(model)), None)
