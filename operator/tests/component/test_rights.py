"""The operator with the rights that the chart gives its ServiceAccount: no more, no less.

The API server enforces them (OwnerReferencesPermissionEnforcement included), and logs every request
of these accounts, reads too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.audit import Write
from cluster.controlplane import ControlPlane
from kvserving_operator.kube import paths
from kvserving_operator.kube.permissions import PERMISSIONS, Permission, Scope

from .apiserver import Server
from .harness import Cluster, Kubelet, Object, OperatorProcess, example, wait_for
from .optional_apis import optional_apis
from .release import NAME, Release

pytestmark = pytest.mark.takes(70)

SELDOM = {("events", "patch")}
"""An event that is repeated within ten seconds is only counted."""
EVERYWHERE, HERE = "cluster-wide", "namespaced"
FINALIZERS = "kvservings/finalizers"
NO_CALLS = {(FINALIZERS, "update"), ("pods", "get")}
"""Asked for by the admission of owner references, and of a Role that grants it to the router."""
DISTINCT = {
    *("kvservings", "kvservings/status", FINALIZERS, "statefulsets", "secrets", "pods", "events"),
    "certificates",
}
"""Rules that are missed each in another way; with KVSERVING_TEST_RIGHTS=all it is every rule."""
RULES = {
    p.rule_resource: p
    for p in PERMISSIONS
    if p.scope is Scope.SERVED
    and (p.rule_resource in DISTINCT or os.environ.get("KVSERVING_TEST_RIGHTS") == "all")
}
LACKING = {rule: f"without-{rule.replace('/', '-')}" for rule in RULES}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    accounts = [f"system:serviceaccount:{namespace}:{NAME}" for namespace in (EVERYWHERE, HERE)]
    with ControlPlane(watched=accounts) as made:
        server = Server(made.kubeconfig)
        server.install_crd()
        for namespace in (EVERYWHERE, HERE, "served", "stranger", *LACKING.values()):
            made.create_namespace(namespace)
        with optional_apis(server):
            yield made


def requests(plane: ControlPlane, release: Release) -> list[Write]:
    return plane.audit.requests(where=lambda request: request.user == release.user)


def demanding(name: str) -> Object:
    """An object with a child of every kind."""
    return example(
        name,
        decode__replicas=2,
        router__gateway={"parentRefs": [{"name": "edge"}]},
        metrics={"podMonitor": {"labels": {}}},
        kvCache__remote__tls={"mode": "CertManager", "issuerRef": {"name": "inside"}},
    )


def test_the_rules_of_the_chart_are_what_a_whole_life_needs(
    plane: ControlPlane, tmp_path: Path
) -> None:
    release = Release(plane, EVERYWHERE)
    release.install()
    cluster = Cluster(plane, "served")
    account = Server(plane.kubeconfig, user=release.user)
    wait_for(lambda: account.may_own("served"), what="the new kind as an owner")
    operator = OperatorProcess(
        Cluster(plane, EVERYWHERE), tmp_path, kubeconfig=release.kubeconfig(tmp_path), namespaces=()
    )
    with operator.start(), Kubelet(cluster):
        theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x-valkey"}}
        cluster.create(theirs)
        cluster.create(demanding("x"))
        cluster.wait_condition("x", "Ready", "False", "NameConflict")
        cluster.delete(paths.CONFIGMAPS, "x-valkey")
        cluster.patch(paths.KVSERVINGS, "x", {"metadata": {"annotations": {"look": "again"}}})
        cluster.settled("x")
        _live(cluster, "x")
        cluster.delete(paths.KVSERVINGS, "x")
        wait_for(lambda: not cluster.children("x"), what="garbage collection")
        assert operator.stop() == 0
    made = requests(plane, release)
    assert [str(request) for request in made if request.status == 403] == []
    assert operator.unexpected == []
    declared = {(p.rule_resource, verb) for p in PERMISSIONS for verb in p.verbs}
    assert sorted((_used(made) | SELDOM) ^ (declared - NO_CALLS)) == []


def _live(cluster: Cluster, name: str) -> None:
    """A rollout, a field that cannot be changed, a part that is no longer wanted, hand edits."""
    before = {p["metadata"]["uid"] for p in cluster.list(paths.PODS, name)}
    disk = {"persistence": {"volumeClaim": {"size": "1Gi"}}}
    changes = {"decode": {"env": [{"name": "A", "value": "b"}]}, "kvCache": {"remote": disk}}
    cluster.patch(paths.KVSERVINGS, name, {"spec": changes})
    wait_for(
        lambda: (
            {f"{name}-decode-0", f"{name}-decode-1", f"{name}-valkey-0"}
            <= {
                p["metadata"]["name"]
                for p in cluster.list(paths.PODS, name)
                if p["metadata"]["uid"] not in before
            }
        ),
        what="every changed pod replaced",
        more=lambda: str(cluster.status(name)),
    )
    cluster.settled(name)
    nothing: Object = {"prefill": None, "router": {"type": "None", "gateway": None}}
    nothing |= {"kvCache": {"remote": None}, "metrics": {"podMonitor": None}}
    nothing |= {"networkPolicy": {"mode": "Disabled"}, "decode": {"replicas": 1}}
    cluster.patch(paths.KVSERVINGS, name, {"spec": nothing})
    wait_for(
        lambda: not {"Deployment", "Role", "NetworkPolicy"} & _kinds(cluster, name),
        what="pruning",
        more=lambda: str(cluster.status(name)),
    )
    cluster.settled(name)


def _kinds(cluster: Cluster, name: str) -> set[str]:
    plurals = {key.partition("/")[0] for key in cluster.children(name)}
    return {resource.kind for resource in paths.CHILDREN if resource.plural in plurals}


def _used(made: list[Write]) -> set[tuple[str, str]]:
    """Resource and verb of each request; an apply that made its object is a create too."""
    answered = [(f"{r.resource}/{r.subresource}".rstrip("/"), r) for r in made]
    created = {(resource, "create") for resource, r in answered if r.status == 201}
    return {(resource, r.verb) for resource, r in answered} | created


def test_each_missing_rule_is_named_and_hurts_nobody_else(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """One operator, a namespace for each rule that its Role there lacks, and a whole one."""
    namespaces = ["served", *LACKING.values()]
    release = Release(plane, HERE, *namespaces)
    assert {o["kind"] for o in release.objects} == {"ServiceAccount", "Role", "RoleBinding"}
    release.install()
    for rule, namespace in LACKING.items():
        release.apply(_without(release.role(namespace), RULES[rule]))
        Cluster(plane, namespace).create(demanding("x"))
    Cluster(plane, "stranger").create(demanding("x"))
    home, whole = Cluster(plane, HERE), Cluster(plane, "served")
    operator = OperatorProcess(
        home, tmp_path, kubeconfig=release.kubeconfig(tmp_path), namespaces=namespaces
    )
    with operator.start(), Kubelet(whole):
        whole.create(demanding("y"))
        whole.settled("y")
        for rule, namespace in LACKING.items():
            wait_for(
                lambda rule=rule, namespace=namespace: _named(
                    RULES[rule], operator, Cluster(plane, namespace)
                ),
                what=f"an error that names {rule}",
                more=lambda namespace=namespace: json.dumps(
                    [Cluster(plane, namespace).status("x"), operator.log[-30:]], indent=1
                ),
            )
        assert Cluster(plane, "stranger").status("x") == {}
        all_ = len(whole.children("y"))
        granted = [ns for rule, ns in LACKING.items() if rule != "kvservings"]
        for namespace in granted:
            release.apply(release.role(namespace))
            note = {"metadata": {"annotations": {"look": "again"}}}
            Cluster(plane, namespace).patch(paths.KVSERVINGS, "x", note)
        for namespace in granted:
            wait_for(
                lambda namespace=namespace: len(Cluster(plane, namespace).children("x")) == all_,
                what=f"children in {namespace} once the right is granted",
                more=lambda namespace=namespace: str(Cluster(plane, namespace).status("x")),
            )
        assert operator.unexpected == []
    asked = {request.namespace for request in requests(plane, release)}
    assert asked == {HERE, *namespaces}, "a request outside of the namespaces served"


def _without(role: Object, permission: Permission) -> Object:
    mine = ([permission.group], [permission.rule_resource])
    kept = [r for r in role["rules"] if (r["apiGroups"], r["resources"]) != mine]
    assert len(kept) == len(role["rules"]) - 1
    return {**role, "rules": kept}


def _named(permission: Permission, operator: OperatorProcess, cluster: Cluster) -> bool:
    """Whether the status or the log says which verb on which resource is forbidden."""
    resource = re.escape(permission.rule_resource)
    said = [c["message"] for c in cluster.status("x").get("conditions", ())]
    said += [
        record["message"]
        for record in operator.log
        if record["level"] in {"warning", "error"} and cluster.namespace in json.dumps(record)
    ]
    pattern = f'cannot \\w+ resource \\\\*"{resource}\\\\*"'
    if permission.resource is paths.SECRETS:  # what the server says of Secrets is never repeated
        pattern = f"(get|patch) /[^ ]*/{resource}/[^ ]*: 403 Forbidden"
    if permission.rule_resource == FINALIZERS:
        pattern = "update kvservings/finalizers"
    return any(re.search(pattern, text) for text in said)


def test_a_deleted_namespace_takes_its_role_along_and_the_others_are_served(
    plane: ControlPlane, tmp_path: Path
) -> None:
    plane.create_namespace("doomed")
    release = Release(plane, HERE, "doomed", "served")
    release.install()
    doomed, whole = Cluster(plane, "doomed"), Cluster(plane, "served")
    operator = OperatorProcess(
        Cluster(plane, HERE),
        tmp_path,
        kubeconfig=release.kubeconfig(tmp_path),
        namespaces=["doomed", "served"],
    )
    with operator.start(), Kubelet(whole):
        doomed.create(demanding("x"))
        wait_for(lambda: len(doomed.children("x")) > 20, what="children")
        plane.api.delete("/api/v1/namespaces/doomed")
        wait_for(lambda: not _exists(plane, "doomed"), what="the end of the namespace")
        whole.create(demanding("z"))
        whole.settled("z")
        assert operator.stop() == 0
        # A new one finds the namespace gone and no right to look for it.
        operator.start()
        wait_for(
            lambda: operator.said("namespace doomed is left out: .* cannot list"),
            what="a word about it",
            more=lambda: json.dumps(operator.log),
        )
        whole.delete(paths.SERVICES, "z")
        wait_for(lambda: whole.get(paths.SERVICES, "z"), what="a repair in the other namespace")
        assert operator.unexpected == []


def _exists(plane: ControlPlane, namespace: str) -> bool:
    found = plane.api.get("/api/v1/namespaces")["items"]
    return namespace in {item["metadata"]["name"] for item in found}


def test_without_the_leases_nobody_leads_and_the_log_says_why(
    plane: ControlPlane, tmp_path: Path
) -> None:
    release = Release(plane, HERE, "served")
    release.install()
    (own,) = (o for o in release.objects if o["metadata"]["name"] == f"{NAME}-leader"
              and o["kind"] == "Role")  # fmt: skip
    release.apply({**own, "rules": []})
    operator = OperatorProcess(
        Cluster(plane, HERE), tmp_path, kubeconfig=release.kubeconfig(tmp_path)
    )
    with operator.start():
        wait_for(
            lambda: operator.said('cannot get resource "leases"'),
            what="an error that names leases",
            more=lambda: json.dumps(operator.log),
        )
        assert not operator.ready()
        release.apply(own)
        operator.wait_leading()
