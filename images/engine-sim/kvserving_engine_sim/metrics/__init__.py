"""Prometheus metrics under vLLM's names, types and labels, and one that says what this is."""
