"""The embedded one-node Kubernetes for demo and tests: `python -m cluster`."""
