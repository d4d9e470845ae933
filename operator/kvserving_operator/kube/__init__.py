"""The Kubernetes API: paths, permissions, client, errors, and the comparison of objects."""
