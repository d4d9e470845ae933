"""KVServing: disaggregated LLM serving with a remote KV tier that is worth reading."""

__version__ = "0.1.0"
