"""Client of one remote instance: threads with blocking sockets, no call without an end.

No asyncio on this path: beside a main thread that holds the interpreter lock an event loop gets a
twentieth of the bandwidth, because it needs the lock for every piece that arrives. Here a value is
read by one system call, header and tail included, and the lock is asked for once per value.
"""
