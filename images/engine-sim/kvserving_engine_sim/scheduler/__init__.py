"""The engine core's decisions: which requests run, on which KV blocks (pure, one thread)."""
