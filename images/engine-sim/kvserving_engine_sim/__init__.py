"""engine-sim: a stand-in for context-parallel prefill engines on machines without GPUs.

Real: the processes, the collectives between them (gloo), LMCache and the remote tier behind it, the
HTTP front, the queue, the KV bytes that move. Simulated: the compute, which is a sleep, the model,
which is a hash of its KV cache, and NIXL, which is a TCP connection. Nothing here is vLLM.
"""

NAME = "kvserving-engine-sim"
VERSION = "0.1.0"
