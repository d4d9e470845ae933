"""What can go wrong with an instance. All of it is a miss to the caller."""


class InstanceError(Exception):
    """The connection is of no use any more."""


class DeadlineError(InstanceError):
    """The time allowed is over."""


class ProtocolError(InstanceError):
    """The other side does not speak the protocol, or sent a value of another length."""


class RefusedError(InstanceError):
    """The server answered with an error: wrong password, no permission, still loading."""
