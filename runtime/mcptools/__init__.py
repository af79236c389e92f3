"""Tool servers (Model Context Protocol) made from a few Python functions."""
