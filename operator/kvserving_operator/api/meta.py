"""Names that the whole product shares: API identity, labels, annotations, field manager.

Every other module takes these strings from here; ports live in ``engines.ports``.
"""

from typing import Final

GROUP: Final = "kvserving.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "KVServing"
PLURAL: Final = "kvservings"
SINGULAR: Final = "kvserving"
SHORT_NAMES: Final = ("kvs",)
CATEGORIES: Final = ("all", "serving")
CRD_NAME: Final = f"{PLURAL}.{GROUP}"

FIELD_MANAGER: Final = "kvserving-operator"
"""The one field manager of every server-side apply of the operator."""
MANAGED_BY: Final = "kvserving-operator"
PART_OF: Final = "kvserving"

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_KVSERVING: Final = f"{GROUP}/kvserving"
LABEL_ROLE: Final = f"{GROUP}/role"
LABEL_LEADER: Final = f"{GROUP}/leader"
LABEL_REVISION: Final = f"{GROUP}/revision"
LABEL_LLMD_ROLE: Final = "llm-d.ai/role"
"""Read by llm-d style endpoint pickers; set on engine pods beside our own role label."""

RESERVED_LABEL_DOMAINS: Final = (GROUP, "app.kubernetes.io", "llm-d.ai")
"""Label and annotation domains that a user may not set on children: selectors rest on them."""

ANNOTATION_RENDER_HASH: Final = f"{GROUP}/render-hash"
"""On every child: hash of the rendered object, so that a hand edit or an upgrade is seen."""
ANNOTATION_CONFIG_HASH: Final = f"{GROUP}/config-hash"
"""On pod templates that read a ConfigMap or Secret: hash of what they read."""
ANNOTATION_ADOPT: Final = f"{GROUP}/adopt"
"""On a KVServing, any value: a new value lets engines and tier take on what the present operator
renders. An upgrade of the operator alone restarts none of them."""
ANNOTATION_ROTATE: Final = f"{GROUP}/rotate-passwords"
"""On a KVServing: a value that it did not have before gives the managed tier's users new passwords,
without a restart of Valkey."""

ANNOTATION_TUNED: Final = f"{GROUP}/tuned"
"""On pod templates of stock engines: what the tuner decided and pods take when they start."""

NAME_PATTERN: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""metadata.name: an RFC 1035 label, because Services are named after it."""
MAX_NAME_LENGTH: Final = 44
"""The longest StatefulSet name is ``NAME-prefill``; its pods carry a revision label that adds 11
characters, so 52 = 63 - 11 characters remain, of which ``-prefill`` takes 8."""
