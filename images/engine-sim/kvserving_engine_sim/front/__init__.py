"""The HTTP front: OpenAI-compatible routes and vLLM's operational ones, on one event loop."""
