"""Prefill to decode: a simulation of NIXL's pull protocol over plain TCP.

The prefill engine keeps a finished request's blocks under a lease and names them in
`kv_transfer_params`; the decode engine reads their bytes from the prefill's side channel.
"""
