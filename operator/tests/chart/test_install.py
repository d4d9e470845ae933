"""The chart on a real API server: install, upgrade with the CRD, uninstall.

And the operator at work under nothing but the role that the chart gave it. There is no kubelet:
the test starts the operator with the environment and the ServiceAccount token of its pod.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.api import ApiError
from cluster.controlplane import ControlPlane
from kvserving_operator.kube import paths

from ..component.apiserver import CRDS, Server
from ..component.harness import RBAC, Cluster, Kubelet, example, rss_mib, wait_for
from . import helm

CRD = f"{CRDS}/kvservings.kvserving.io"


class Chart:
    """helm against one control plane, and what it left there."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def run(self, *arguments: str) -> str:
        command = [helm.binary(), "--kubeconfig", str(self.plane.kubeconfig), *arguments]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.plane.state)}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, namespace: str, chart: Path = helm.CHART, **values: str) -> None:
        flags = [f"--set={name}={value}" for name, value in values.items()]
        self.run("upgrade", "--install", helm.RELEASE, str(chart), "-n", namespace, *flags)
        wait_for(self.established, what="the CRD")

    def uninstall(self, namespace: str) -> None:
        self.run("uninstall", helm.RELEASE, "-n", namespace)

    def established(self) -> bool:
        conditions = (self.get(CRD) or {}).get("status", {}).get("conditions", [])
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    def get(self, path: str) -> dict[str, Any] | None:
        try:
            return self.plane.api.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def may(
        self, user: str, verb: str, resource: str, namespace: str = "", group: str = ""
    ) -> bool:
        """Whether the API server would let this user do so."""
        plural, _, subresource = resource.partition("/")
        attributes = {
            "verb": verb,
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "namespace": namespace,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        answer = self.plane.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])


@pytest.fixture(scope="module")
def chart() -> Iterator[Chart]:
    with ControlPlane() as plane:
        yield Chart(plane)


@pytest.fixture
def home(chart: Chart) -> Iterator[str]:
    """A namespace for the release, which is gone at the end, the CRD with it."""
    name = f"system-{uuid.uuid4().hex[:8]}"
    chart.plane.create_namespace(name)
    yield name
    if helm.RELEASE in chart.run("list", "-q", "-n", name):
        chart.uninstall(name)
    chart.plane.api.delete(CRD)
    wait_for(lambda: chart.get(CRD) is None, what="the CRD is gone", timeout=60)


@pytest.fixture
def served(chart: Chart) -> str:
    name = f"serving-{uuid.uuid4().hex[:8]}"
    chart.plane.create_namespace(name)
    return name


def older(folder: Path) -> Path:
    """The chart as an earlier version might have been: its CRD lacks a field and a column."""
    copy = folder / "older"
    shutil.copytree(helm.CHART, copy)
    path = copy / "files" / "crds" / "kvserving.io_kvservings.yaml"
    crd = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    (version,) = crd["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["suspend"]
    version["additionalPrinterColumns"].pop()
    path.write_text(yaml.dump(crd, Dumper=yaml.CSafeDumper))
    return copy


def test_upgrade_brings_the_new_schema_and_uninstall_takes_no_object(
    chart: Chart, home: str, served: str, tmp_path: Path
) -> None:
    def knows_suspend() -> bool:
        crd = chart.get(CRD)
        assert crd
        (version,) = crd["spec"]["versions"]
        return "suspend" in version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]

    cluster = Cluster(chart.plane, served)
    chart.install(home, older(tmp_path))
    assert not knows_suspend()
    uid = cluster.create(example("kept"))["metadata"]["uid"]
    before = chart.get(f"/apis/apps/v1/namespaces/{home}/deployments/{helm.RELEASE}")

    chart.install(home)
    assert knows_suspend()
    after = chart.get(f"/apis/apps/v1/namespaces/{home}/deployments/{helm.RELEASE}")
    assert before
    assert after
    assert before["metadata"]["generation"] == after["metadata"]["generation"], "nothing to roll"
    assert cluster.must_get(paths.KVSERVINGS, "kept")["metadata"]["uid"] == uid

    chart.uninstall(home)
    assert chart.established()
    assert cluster.must_get(paths.KVSERVINGS, "kept")["metadata"]["uid"] == uid
    assert chart.get(f"/apis/apps/v1/namespaces/{home}/deployments/{helm.RELEASE}") is None
    roles = chart.plane.api.get(f"{RBAC}/clusterroles")["items"]
    assert not [r for r in roles if r["metadata"]["name"].startswith(f"{home}:")]

    chart.install(home)
    assert cluster.must_get(paths.KVSERVINGS, "kept")["metadata"]["uid"] == uid


def test_users_with_view_and_edit(chart: Chart, home: str, served: str) -> None:
    chart.install(home)
    for role in ("view", "edit", "admin"):
        reference = {"apiGroup": RBAC.split("/")[2], "kind": "ClusterRole", "name": role}
        subject = {"apiGroup": RBAC.split("/")[2], "kind": "User", "name": f"{role}er"}
        chart.plane.api.create(
            f"{RBAC}/namespaces/{served}/rolebindings",
            {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]},
        )

    def may(user: str, verb: str, resource: str) -> bool:
        return chart.may(user, verb, resource, served, "kvserving.io")

    wait_for(lambda: may("adminer", "create", "kvservings"), what="aggregation")
    wait_for(lambda: may("viewer", "list", "kvservings"), what="aggregation")
    assert not may("viewer", "create", "kvservings")
    assert may("editer", "delete", "kvservings")
    assert may("editer", "patch", "kvservings/scale")
    for user in ("viewer", "editer", "adminer"):
        assert not may(user, "patch", "kvservings/status")
    assert not chart.may("viewer", "list", "kvservings", home, "kvserving.io")


class OperatorOfTheChart:
    """The operator as its pod would run it: environment and token are those of the Deployment."""

    def __init__(self, chart: Chart, home: str, folder: Path) -> None:
        self._chart = chart
        self._home = home
        self.log = folder / "operator.log"
        deployment = chart.get(f"/apis/apps/v1/namespaces/{home}/deployments/{helm.RELEASE}")
        assert deployment
        self._pod = deployment["spec"]["template"]["spec"]
        self.account = self._pod["serviceAccountName"]
        self._kubeconfig = folder / "operator.kubeconfig"
        self._kubeconfig.write_text(json.dumps(self._credentials()))

    def _credentials(self) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{self._home}/serviceaccounts/{self.account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self._chart.plane.api.create(path, request)["status"]["token"]
        config: dict[str, Any] = json.loads(self._chart.plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        return config

    def start(self) -> subprocess.Popen[bytes]:
        (container,) = self._pod["containers"]
        given = {e["name"]: e["value"] for e in container["env"] if "value" in e}
        pod = {"POD_NAMESPACE": self._home, "POD_NAME": "pod", "POD_UID": uuid.uuid4().hex}
        outside = {
            "KVSERVING_KUBECONFIG": str(self._kubeconfig),
            "KVSERVING_HTTP_HOST": "127.0.0.1",
        }
        (program,) = container["args"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [str(Path(sys.executable).with_name(program)), "--http-port", "0"],
                env={"PATH": os.environ["PATH"], **given, **pod, **outside},
                stdout=log,
                stderr=log,
            )

    @property
    def requested_mib(self) -> int:
        (container,) = self._pod["containers"]
        return int(container["resources"]["requests"]["memory"].removesuffix("Mi"))

    def complaints(self) -> list[str]:
        lines = self.log.read_text().splitlines()
        records = [json.loads(line) for line in lines if line.startswith("{")]
        return [r["message"] for r in records if r["level"] == "error" or "exception" in r]


@pytest.mark.parametrize("mode", ["cluster-wide", "namespaced"])
def test_the_operator_does_its_work_under_the_charts_role(
    chart: Chart, home: str, served: str, tmp_path: Path, mode: str
) -> None:
    values = {"namespaces": f"{{{served}}}"} if mode == "namespaced" else {}
    chart.install(home, **values)
    operator = OperatorOfTheChart(chart, home, tmp_path)
    user = f"system:serviceaccount:{home}:{operator.account}"
    cluster = Cluster(chart.plane, served)
    account = Server(chart.plane.kubeconfig, user=user)
    wait_for(lambda: account.may_own(served), what="the new kind as an owner", timeout=60)
    process = operator.start()
    try:
        with Kubelet(cluster):
            cluster.create(example("first"))
            cluster.wait_ready("first", timeout=120)
            children = cluster.children("first")
            kinds = {key.split("/")[0] for key in children}
            assert {"statefulsets", "deployments", "secrets", "roles", "networkpolicies"} <= kinds
            cluster.patch(paths.KVSERVINGS, "first", {"spec": {"decode": {"replicas": 2}}})
            cluster.settled("first")
            cluster.delete(paths.KVSERVINGS, "first")
            wait_for(lambda: not cluster.children("first"), what="children are gone", timeout=60)
        used = rss_mib(process.pid)
    finally:
        process.terminate()
        process.wait(timeout=20)
    assert operator.complaints() == []
    written = [w for w in chart.plane.audit.writes() if w.user == user]
    assert written
    assert [w for w in written if w.status == 403] == []
    assert used < operator.requested_mib, "the request covers what is used"
    holder = chart.get(f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/{helm.RELEASE}")
    assert holder, "it led by the Lease that the chart named"

    everywhere = mode == "cluster-wide"
    assert chart.may(user, "patch", "statefulsets", "default", "apps") is everywhere
    assert chart.may(user, "get", "secrets", "default") is everywhere
    assert chart.may(user, "get", "secrets", served)
    assert not chart.may(user, "list", "secrets", served)
    assert not chart.may(user, "list", "secrets")
    assert not chart.may(user, "update", "leases", served, "coordination.k8s.io")
    assert not chart.may(user, "patch", "kvservings", served, "kvserving.io"), "spec is the user's"
