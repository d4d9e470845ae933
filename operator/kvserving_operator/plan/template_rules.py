"""What a podTemplate may not set. Pure.

A podTemplate is the door for everything the API has no field for; it is not a second door to what
the API has a field for. Anything that would be overwritten after the merge is refused here, so
that nothing a user writes is silently ignored.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kvserving_operator.api import meta
from kvserving_operator.api.v1alpha1 import NetworkPolicyMode
from kvserving_operator.engines import paths
from kvserving_operator.engines.base import (
    AGENT_CONTAINER,
    ENGINE_CONTAINER,
    WAIT_CONTAINER,
    Proposal,
    Role,
)
from kvserving_operator.engines.faults import Fault, invalid
from kvserving_operator.engines.registry import ENGINES
from kvserving_operator.plan import volumes

_MAIN_KEYS: Final = frozenset(
    {
        "name",
        "command",
        "env",
        "volumeMounts",
        "volumeDevices",
        "securityContext",
        "workingDir",
        "imagePullPolicy",
        "terminationMessagePath",
        "terminationMessagePolicy",
    }
)
"""What may be set on a container of the operator's that does the pod's work."""
_HELPER_KEYS: Final = frozenset({"name", "resources", "securityContext", "imagePullPolicy"})
"""What may be set on a helper container of the operator's."""
_REMEDIES: Final = {
    "args": "set extraArgs instead",
    "image": "set the image field instead",
    "ports": "remove it: the operator owns the ports",
    "resources": "set the resources field instead",
    "envFrom": "name each variable in env, so that owned ones can be told",
    "lifecycle": "remove it: the operator owns how a pod is let go",
}
_POD_KEYS: Final = {
    "restartPolicy": "remove it: it must be Always",
    "terminationGracePeriodSeconds": "set drain.timeout of the role instead",
    "shareProcessNamespace": "remove it: an engine that still starts would ignore SIGTERM",
    "enableServiceLinks": "remove it: a Service called vllm would set VLLM_PORT",
    "hostname": "remove it: the StatefulSet sets it",
    "subdomain": "remove it: the StatefulSet sets it",
    "ephemeralContainers": "remove it: they cannot be part of a template",
    "nodeName": "use nodeSelector or affinity",
}
"""Keys of the pod spec that belong to the operator."""
_ACCOUNT_KEYS: Final = {
    "serviceAccountName": "remove it: the router runs under an account of its own",
    "serviceAccount": "remove it: the router runs under an account of its own",
    "automountServiceAccountToken": "remove it: the router finds engines by the API",
}
_CONTAINER_LISTS: Final = ("containers", "initContainers")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    """One podTemplate of a spec, and what in its pods belongs to the operator."""

    field: str
    value: Mapping[str, Any]
    main: str
    helpers: frozenset[str] = frozenset()
    pod_keys: Mapping[str, str] | None = None
    volumes: frozenset[str] = frozenset()
    mounts: tuple[str, ...] = ()
    engine: bool = False


def pod_templates_are_shaped(proposal: Proposal) -> Iterator[Fault]:
    """Every podTemplate has the shape of a PodTemplateSpec, as far as the merge looks at it."""
    for template in _templates(proposal):
        for path, what in _misshapen(template.value):
            yield invalid(f"{template.field}{path}", what, "write it as in a PodTemplateSpec")


def pod_templates_are_free(proposal: Proposal) -> Iterator[Fault]:
    """No podTemplate sets what belongs to the operator."""
    for template in _templates(proposal):
        if not any(_misshapen(template.value)):
            yield from _metadata_faults(template)
            yield from _pod_faults(template)
            yield from _container_faults(proposal, template)
            yield from _volume_faults(template)


def host_network_has_no_policy(proposal: Proposal) -> Iterator[Fault]:
    """NetworkPolicies do not apply to pods in the host's network."""
    if proposal.spec.network_policy.mode is NetworkPolicyMode.DISABLED:
        return
    for template in _templates(proposal):
        if not any(_misshapen(template.value)) and _pod(template).get("hostNetwork"):
            yield invalid(
                f"{template.field}.spec.hostNetwork",
                "network policies do not apply to pods in the host's network",
                "remove it, or set spec.networkPolicy.mode to Disabled",
            )


def _templates(proposal: Proposal) -> Iterator[_Template]:
    spec = proposal.spec
    fields: list[tuple[str, Mapping[str, Any]]] = [
        ("spec.engine.podTemplate", spec.engine.pod_template)
    ]
    fields += [(f"spec.{role}.podTemplate", given.pod_template) for role, given in proposal.roles]
    for field, value in fields:
        yield _Template(
            field=field,
            value=value,
            main=ENGINE_CONTAINER,
            helpers=frozenset({AGENT_CONTAINER, WAIT_CONTAINER}),
            volumes=volumes.ENGINE,
            mounts=paths.RESERVED,
            engine=True,
        )
    yield _Template(
        field="spec.kvCache.remote.podTemplate",
        value=spec.kv_cache.remote.pod_template,
        main=Role.VALKEY.value,
        volumes=volumes.VALKEY,
    )
    yield _Template(
        field="spec.router.podTemplate",
        value=spec.router.pod_template,
        main=Role.ROUTER.value,
        pod_keys=_ACCOUNT_KEYS,
        volumes=volumes.ROUTER,
    )


def _misshapen(value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path, what) of everything whose shape the merge could not handle."""
    for key in value:
        if key not in ("metadata", "spec"):
            yield f".{key}", "is not part of a PodTemplateSpec"
    for key in ("metadata", "spec"):
        if not isinstance(value.get(key, {}), Mapping):
            yield f".{key}", "is not an object"
            return
    yield from _directives(value, "")
    pod = value.get("spec", {})
    for name in (*_CONTAINER_LISTS, "volumes"):
        yield from _misnamed(pod.get(name, []), f".spec.{name}")
    for name in _CONTAINER_LISTS:
        if not any(_misnamed(pod.get(name, []), "")):
            for index, container in enumerate(pod.get(name, [])):
                path = f".spec.{name}[{index}]"
                yield from _misnamed(container.get("env", []), f"{path}.env")
                yield from _misnamed(
                    container.get("volumeMounts", []), f"{path}.volumeMounts", key="mountPath"
                )
                yield from _misshapen_security(container, path)


def _misshapen_security(container: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """The operator adds capabilities to this one after the merge."""
    context = container.get("securityContext", {})
    if not isinstance(context, Mapping):
        yield f"{path}.securityContext", "is not an object"
        return
    capabilities = context.get("capabilities", {})
    if not isinstance(capabilities, Mapping):
        yield f"{path}.securityContext.capabilities", "is not an object"
    elif not isinstance(capabilities.get("add", []), list | tuple):
        yield f"{path}.securityContext.capabilities.add", "is not a list"


def _misnamed(items: Any, path: str, key: str = "name") -> Iterator[tuple[str, str]]:
    """Whether ``items`` is a list of objects with one distinct ``key`` each."""
    if not isinstance(items, Sequence) or isinstance(items, str):
        yield path, "is not a list"
        return
    seen: set[str] = set()
    for index, item in enumerate(items):
        name = item.get(key) if isinstance(item, Mapping) else None
        if not isinstance(name, str) or not name:
            yield f"{path}[{index}]", f"has no {key}"
        elif name in seen:
            yield f"{path}[{index}]", f"repeats the {key} {name}"
        else:
            seen.add(name)


def _directives(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Patch directives such as ``$patch`` are for kubectl; here a null removes a key."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key.startswith("$"):
                yield f"{path}.{key}", "is a patch directive; a key is removed by null"
            yield from _directives(item, f"{path}.{key}")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from _directives(item, f"{path}[{index}]")


def _metadata_faults(template: _Template) -> Iterator[Fault]:
    for key, entries in template.value.get("metadata", {}).items():
        path = f"{template.field}.metadata.{key}"
        if key not in ("labels", "annotations") or not isinstance(entries, Mapping):
            yield invalid(path, "only labels and annotations may be set", "remove it")
            continue
        for name in entries:
            if _reserved(name):
                yield invalid(f"{path}.{name}", "lies in a domain of the operator's", "remove it")


def _reserved(key: str) -> bool:
    domain = key.split("/", 1)[0] if "/" in key else ""
    return any(
        domain == owned or domain.endswith(f".{owned}") for owned in meta.RESERVED_LABEL_DOMAINS
    )


def _pod_faults(template: _Template) -> Iterator[Fault]:
    pod = _pod(template)
    for key, remedy in {**_POD_KEYS, **(template.pod_keys or {})}.items():
        if key in pod:
            yield invalid(f"{template.field}.spec.{key}", "is the operator's", remedy)


def _container_faults(proposal: Proposal, template: _Template) -> Iterator[Fault]:
    for listing in _CONTAINER_LISTS:
        for index, container in enumerate(_pod(template).get(listing, [])):
            path = f"{template.field}.spec.{listing}[{index}]"
            name = container["name"]
            if name in template.helpers:
                yield from _key_faults(path, container, _HELPER_KEYS)
            elif name == template.main:
                yield from _key_faults(path, container, _MAIN_KEYS)
                yield from _mount_faults(template, path, container)
                if template.engine:
                    yield from _environment_faults(proposal, path, container)


def _key_faults(path: str, container: Mapping[str, Any], free: frozenset[str]) -> Iterator[Fault]:
    for key in container:
        if key not in free:
            what = f"{key} of the container {container['name']} is the operator's"
            yield invalid(f"{path}.{key}", what, _REMEDIES.get(key, "remove it"))


def _environment_faults(
    proposal: Proposal, path: str, container: Mapping[str, Any]
) -> Iterator[Fault]:
    engine = ENGINES[proposal.spec.engine.type]
    for index, variable in enumerate(container.get("env", [])):
        value = variable.get("value")
        remedy = engine.environment_remedy(
            variable["name"], value if isinstance(value, str) else None
        )
        if remedy:
            what = f"{variable['name']} is the operator's"
            yield invalid(f"{path}.env[{index}]", what, remedy)


def _mount_faults(template: _Template, path: str, container: Mapping[str, Any]) -> Iterator[Fault]:
    for index, mount in enumerate(container.get("volumeMounts", [])):
        if mount["mountPath"].rstrip("/") in template.mounts:
            what = f"{mount['mountPath']} is a mount of the operator's"
            yield invalid(f"{path}.volumeMounts[{index}]", what, "choose another path")


def _volume_faults(template: _Template) -> Iterator[Fault]:
    for index, volume in enumerate(_pod(template).get("volumes", [])):
        if volume["name"] in template.volumes:
            yield invalid(
                f"{template.field}.spec.volumes[{index}]",
                f"{volume['name']} is a volume of the operator's",
                "choose another name",
            )


def _pod(template: _Template) -> Mapping[str, Any]:
    pod: Mapping[str, Any] = template.value.get("spec", {})
    return pod
