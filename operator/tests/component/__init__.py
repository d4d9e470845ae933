"""Component tests: on a real etcd and API server."""
