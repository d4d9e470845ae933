"""Pure translation of a Plan into Kubernetes objects, one module for each kind or component."""

from kvserving_operator.render.objects import render

__all__ = ["render"]
