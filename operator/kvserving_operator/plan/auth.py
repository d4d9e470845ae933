"""The secrets of one KVServing as values. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class SpareUse(StrEnum):
    """What a second pair of passwords is there for: how far a rotation has come."""

    NEXT = "next"
    """Valkey shall learn to take them; nobody uses them yet."""
    PREVIOUS = "previous"
    """Engines that are not replaced yet still use them; Valkey takes both."""
    RETIRED = "retired"
    """Nobody uses them, and Valkey shall take them no more; kept to see that it refuses them."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SparePasswords:
    """The pair of passwords beside the one in use, while a rotation is under way."""

    use: SpareUse
    engine_password: str
    operator_password: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AuthMaterial:
    """The secrets of one KVServing: made once by the runtime, read back from the live Secret.

    Not in ``repr``, so that no log line and no traceback shows them. Each is URL-safe text.
    """

    agent_token: str
    engine_password: str
    operator_password: str
    tier_id: str = ""
    """Stays through rotations. Another one: the running Valkeys know none of these passwords, and
    cannot be told, so they are replaced."""
    rotation: str = ""
    """Digest of the request for which the passwords were last changed; empty: for none."""
    spare: SparePasswords | None = None

    @property
    def accepted_engine_passwords(self) -> tuple[str, ...]:
        """What Valkey's engine user may log in with."""
        spare = self._accepted_spare
        return (self.engine_password, *((spare.engine_password,) if spare else ()))

    @property
    def accepted_operator_passwords(self) -> tuple[str, ...]:
        """What Valkey's operator user may log in with."""
        spare = self._accepted_spare
        return (self.operator_password, *((spare.operator_password,) if spare else ()))

    @property
    def _accepted_spare(self) -> SparePasswords | None:
        retired = self.spare is not None and self.spare.use is SpareUse.RETIRED
        return None if retired else self.spare
