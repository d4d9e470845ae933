"""The agent beside every engine: the only door to the engine's unauthenticated local APIs."""
