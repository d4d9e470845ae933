"""The tables: URL paths, kinds, and permissions that cover exactly the calls that are made."""

from __future__ import annotations

import pytest

from kvserving_operator.kube import paths, permissions
from kvserving_operator.kube.permissions import PERMISSIONS, Scope, UndeclaredCallError


def test_paths_of_core_and_group_resources() -> None:
    assert paths.PODS.path("n", "p", "status") == "/api/v1/namespaces/n/pods/p/status"
    assert paths.ROLES.path("n") == "/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles"
    assert paths.KVSERVINGS.path(None) == "/apis/kvserving.io/v1alpha1/kvservings"


def test_names_cannot_leave_their_place_in_a_path() -> None:
    assert paths.PODS.path("n", "../../x?y#z") == "/api/v1/namespaces/n/pods/..%2F..%2Fx%3Fy%23z"


@pytest.mark.parametrize("resource", paths.CHILDREN)
def test_kinds_are_found_from_manifests(resource: paths.Resource) -> None:
    manifest = {"apiVersion": resource.api_version, "kind": resource.kind}
    assert paths.resource_of(manifest) is resource


def test_unknown_kinds_are_a_programming_error() -> None:
    with pytest.raises(KeyError):
        paths.resource_of({"apiVersion": "v1", "kind": "Node"})


def test_watched_kinds_may_be_listed_and_watched_and_secrets_may_not() -> None:
    for resource in (paths.KVSERVINGS, *paths.WATCHED):
        permissions.require("list", resource)
        permissions.require("watch", resource)
    for verb in ("list", "watch"):
        with pytest.raises(UndeclaredCallError):
            permissions.require(verb, paths.SECRETS)


def test_the_spec_can_never_be_written() -> None:
    for verb in ("create", "update", "patch", "delete"):
        with pytest.raises(UndeclaredCallError):
            permissions.require(verb, paths.KVSERVINGS)


def test_every_permission_says_why_and_none_is_a_wildcard() -> None:
    seen = set()
    for permission in PERMISSIONS:
        assert permission.why
        assert "*" not in (permission.group, permission.rule_resource, *permission.verbs)
        identity = (permission.group, permission.rule_resource)
        assert identity not in seen
        seen.add(identity)


def test_leases_are_needed_in_the_own_namespace_only() -> None:
    own = permissions.rules(Scope.OWN)
    assert [rule["resources"] for rule in own] == [["leases"]]
    assert not [r for r in permissions.rules(Scope.SERVED) if "leases" in r["resources"]]
