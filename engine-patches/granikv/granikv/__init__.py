"""HOT/COLD asymmetric KV paging.

A HOT slab is a contiguous run of slots that holds one shared prefix; everything else lives in
token-level COLD slots of the same tensors.  The modules imported here are pure (numpy only);
`granikv.kernels`, `granikv.backends` and `granikv.pool` need torch and triton and are imported
by whoever has them.
"""

__version__ = "0.1.0"
