"""Tests of the cluster tool on this very machine: root, no other embedded cluster, minutes."""
