"""`python -m kvserving_engine_sim`: the same as the executable `vllm`."""

from kvserving_engine_sim.cli import run

run()
