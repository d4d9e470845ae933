"""Imported once by the fork server, so that a rank starts in milliseconds."""

import torch.distributed  # noqa: F401
