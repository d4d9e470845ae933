"""A remote KV tier for context-parallel prefill, sharded by rank.

Importing this package imports nothing of vLLM, LMCache or torch; the modules that need them say so
in their first line and are imported by the engine side only.
"""

__version__ = "0.1.0"
