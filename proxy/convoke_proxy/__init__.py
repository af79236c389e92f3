"""The model proxy of Convoke: LiteLLM behind a gate that knows agents' keys.

- __main__: starts it
- config: LiteLLM's settings and environment
- keys: which key is whose
- gate: the ASGI application in front of LiteLLM's
- request: which request bodies pass
- models: which model names pass
- litellm_hooks: what LiteLLM calls, which is its authentication, and a callback after an answer
- metrics: counters, and the listener for scrapers
- provider: asks the provider whether it can be reached
- server: connections
- listen: the addresses of both listeners
- log: what may be written after the start
"""
