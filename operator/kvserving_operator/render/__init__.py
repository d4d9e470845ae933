"""Pure translation of a Plan into Kubernetes objects, one module for each kind or component."""
