"""`python -m kvserving_agent`: the same as the `kvserving-agent` command."""

from kvserving_agent.main import run

run()
