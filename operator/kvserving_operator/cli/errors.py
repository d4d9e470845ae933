"""What the program gives up with: one line for the user and an exit status."""


class UsageError(Exception):
    """The program was asked for something that it cannot do: a missing file, a wrong flag."""


class ClusterError(Exception):
    """The cluster could not be asked, or refused to answer."""
