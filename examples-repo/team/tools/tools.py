"""Small text tools. Each function below becomes one tool of `text-tools`.

The signature and the docstring are all that the model sees of a tool, so both
say plainly what goes in and what comes out. Only the standard library is there.
"""

import re


def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def list_links(text: str) -> list[str]:
    """List the http and https links of a text, each once, in order of appearance."""
    found = re.findall(r"https?://[^\s<>()\[\]\"']+", text)
    return list(dict.fromkeys(link.rstrip(".,;:!?") for link in found))


def missing_links(notes: str, report: str) -> list[str]:
    """List the links that the notes hold and the report lacks."""
    kept = set(list_links(report))
    return [link for link in list_links(notes) if link not in kept]
