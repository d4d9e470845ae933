"""Remedies that the tables of several engines give for the flags they own."""

from typing import Final

PARALLELISM: Final = "set parallelism of the role"
NODES: Final = "set nodesPerReplica of the role"
PORTS: Final = "remove it: the operator owns the ports, network policies rest on them"
TLS: Final = "remove it: keys and TLS towards clients are the gateway's job"
