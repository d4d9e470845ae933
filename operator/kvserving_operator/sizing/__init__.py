"""How much: bytes of KV of a token, memory of a tier, HOT pages. Pure.

``kvserving plan`` prints it; ``docs/sizing.md`` explains it.
"""
