"""Who may do what: exactly the calls that the operator makes, exactly where it makes them."""

from __future__ import annotations

import pytest
import yaml

from kvserving_operator.kube.permissions import PERMISSIONS, Scope

from . import helm

Grants = set[tuple[str, str, str]]


def grants(role: helm.Object) -> Grants:
    """(group, resource, verb) of a role's rules."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def declared(scope: Scope) -> Grants:
    return {
        (p.group, p.rule_resource, verb)
        for p in PERMISSIONS
        if p.scope is scope
        for verb in p.verbs
    }


def bound(case: str) -> list[tuple[str | None, helm.Object]]:
    """Namespace (None: all) and role of every binding to the operator's ServiceAccount."""
    roles = {
        (r["kind"], r["metadata"].get("namespace"), r["metadata"]["name"]): r
        for kind in ("Role", "ClusterRole")
        for r in helm.of_kind(case, kind)
    }
    account = helm.only(case, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    found = []
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in helm.of_kind(case, kind):
            subject = {
                "kind": "ServiceAccount",
                "name": account,
                "namespace": helm.NAMESPACE,
            }
            assert binding["subjects"] == [subject]
            namespace = binding["metadata"].get("namespace")
            ref = binding["roleRef"]
            where = namespace if ref["kind"] == "Role" else None
            found.append((namespace, roles[ref["kind"], where, ref["name"]]))
    return found


def test_cluster_wide_holds_what_is_declared_and_the_lease_at_home() -> None:
    assert {n: grants(role) for n, role in bound("default")} == {
        None: declared(Scope.SERVED),
        helm.NAMESPACE: declared(Scope.OWN),
    }


def test_namespaced_holds_it_in_those_namespaces_and_nothing_in_the_cluster() -> None:
    assert helm.of_kind("namespaced", "ClusterRoleBinding") == []
    assert {n: grants(role) for n, role in bound("namespaced")} == {
        "serving": declared(Scope.SERVED),
        "staging": declared(Scope.SERVED),
        helm.NAMESPACE: declared(Scope.OWN),
    }


def test_an_installer_without_cluster_rights_creates_nothing_cluster_scoped() -> None:
    kinds = {manifest["kind"] for manifest in helm.objects("restricted-installer")}
    assert kinds == {"ServiceAccount", "Role", "RoleBinding", "Service", "Deployment"}


@pytest.mark.parametrize("case", helm.cases())
def test_no_wildcard_and_no_look_at_foreign_secrets(case: str) -> None:
    for kind in ("Role", "ClusterRole"):
        for role in helm.of_kind(case, kind):
            held = grants(role)
            assert not any("*" in part for grant in held for part in grant)
            assert not {("", "secrets", "list"), ("", "secrets", "watch")} & held


def test_the_lease_is_granted_at_home_only() -> None:
    for case in ("default", "namespaced"):
        for namespace, role in bound(case):
            leases = {g for g in grants(role) if g[1] == "leases"}
            assert bool(leases) == (namespace == helm.NAMESPACE)


def test_users_of_view_and_edit_get_the_objects_but_never_the_status() -> None:
    roles = {
        role["metadata"]["name"].rpartition(":")[2]: role
        for role in helm.of_kind("default", "ClusterRole")
    }
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    view, edit = roles["view"], roles["edit"]
    assert {k for k in view["metadata"]["labels"] if k.startswith(prefix)} == {prefix + "view"}
    assert {k for k in edit["metadata"]["labels"] if k.startswith(prefix)} == {
        prefix + "edit",
        prefix + "admin",
    }
    assert {verb for _, _, verb in grants(view)} == {"get", "list", "watch"}
    assert {r for _, r, _ in grants(edit)} == {"kvservings", "kvservings/scale"}


def test_two_releases_share_no_cluster_scoped_name() -> None:
    def names(namespace: str) -> set[str]:
        flags = ("-n", namespace, "--set", "crds.install=false")
        done = helm.run("template", "kvserving", str(helm.CHART), *flags)
        assert done.returncode == 0, done.stderr
        found = yaml.safe_load_all(done.stdout)
        return {o["metadata"]["name"] for o in found if o and o["kind"].startswith("ClusterRole")}

    assert names("one")
    assert not names("one") & names("two")


def test_without_rbac_there_is_none() -> None:
    kinds = {manifest["kind"] for manifest in helm.objects("minimal")}
    assert not {kind for kind in kinds if "Role" in kind or kind == "ServiceAccount"}
