import base64
import dataclasses
import hashlib

import pytest

from kvserving_operator.plan import AuthMaterial
from kvserving_operator.plan.model import SparePasswords, SpareUse
from kvserving_operator.render import render
from kvserving_operator.render.metadata import digest
from kvserving_operator.render.secret import acl_file
from tests.unit.stack import (
    AUTH,
    CPU_SPLIT,
    SPLIT,
    TIER,
    kinds,
    one,
    owner,
    planned,
    pod_spec,
    rendered,
)

BOTH = {**SPLIT, **TIER}
RENDER_HASH = "kvserving.io/render-hash"
CONFIG_HASH = "kvserving.io/config-hash"


def test_the_whole_stack_has_these_children():
    assert kinds(rendered(BOTH)) == {
        "ServiceAccount/x-router",
        "Role/x-router",
        "RoleBinding/x-router",
        "Secret/x-auth",
        "ConfigMap/x-lmcache",
        "ConfigMap/x-valkey",
        "Service/x-valkey",
        "Service/x-prefill",
        "Service/x-decode",
        "Service/x",
        "Service/x-metrics",
        "NetworkPolicy/x-valkey",
        "NetworkPolicy/x-prefill",
        "NetworkPolicy/x-decode",
        "NetworkPolicy/x-router",
        "PodDisruptionBudget/x-router",
        "StatefulSet/x-valkey",
        "StatefulSet/x-prefill",
        "StatefulSet/x-decode",
        "Deployment/x-router",
    }


def test_what_is_not_wanted_is_not_there():
    changes = {"router.type": "None", "networkPolicy": {"mode": "Disabled"}}
    assert kinds(rendered(changes)) == {
        "Secret/x-auth",
        "Service/x-decode",
        "StatefulSet/x-decode",
    }


def test_every_child_says_whose_it_is():
    for manifest in rendered(BOTH, name="glm"):
        meta = manifest["metadata"]
        assert meta["ownerReferences"] == [
            {
                "apiVersion": "kvserving.io/v1alpha1",
                "kind": "KVServing",
                "name": "glm",
                "uid": "uid-1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        labels = meta["labels"]
        assert labels["app.kubernetes.io/name"] == "kvserving"
        assert labels["app.kubernetes.io/instance"] == labels["kvserving.io/kvserving"] == "glm"
        assert labels["app.kubernetes.io/part-of"] == "kvserving"
        assert labels["app.kubernetes.io/managed-by"] == "kvserving-operator"
        assert labels["app.kubernetes.io/component"] == labels["kvserving.io/role"]


def test_the_render_hash_is_of_the_object_without_it():
    for manifest in rendered(BOTH):
        annotations = dict(manifest["metadata"]["annotations"])
        hash_ = annotations.pop(RENDER_HASH)
        bare = {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}
        if not annotations:
            del bare["metadata"]["annotations"]
        assert hash_ == digest(bare)


def test_a_change_changes_the_hash_of_what_it_changed_only():
    before = {(o["kind"], o["metadata"]["name"]): o for o in rendered(BOTH)}
    after = {
        (o["kind"], o["metadata"]["name"]): o for o in rendered({**BOTH, "decode.replicas": 3})
    }
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {("StatefulSet", "x-decode")}
    assert set(after) - set(before) == {("PodDisruptionBudget", "x-decode")}


def pod_hash(objects: tuple, name: str) -> str | None:
    annotations = one(objects, "StatefulSet", name)["spec"]["template"]["metadata"].get(
        "annotations", {}
    )
    value: str | None = annotations.get(CONFIG_HASH)
    return value


def test_only_pods_that_read_a_file_follow_it():
    before, after = rendered(BOTH), rendered({**BOTH, "kvCache.chunkTokens": 128})
    assert pod_hash(before, "x-prefill") != pod_hash(after, "x-prefill")
    assert pod_hash(before, "x-decode") is None
    assert pod_hash(before, "x-valkey") == pod_hash(after, "x-valkey")


def test_valkey_follows_its_configuration_and_whose_passwords_it_knows():
    plan = planned(BOTH)
    lost = dataclasses.replace(AUTH, tier_id="another", engine_password="e", operator_password="o")
    before, after = render(plan, AUTH, owner()), render(plan, lost, owner())
    assert pod_hash(before, "x-valkey") != pod_hash(after, "x-valkey")
    assert pod_hash(before, "x-prefill") != pod_hash(after, "x-prefill")
    larger = rendered({**BOTH, "kvCache.remote.memoryPerInstance": "16Gi"})
    assert pod_hash(before, "x-valkey") != pod_hash(larger, "x-valkey")


@pytest.mark.parametrize("use", SpareUse)
def test_a_rotation_restarts_engines_that_read_the_password_and_never_valkey(use: SpareUse):
    spare = SparePasswords(use=use, engine_password="new-e", operator_password="new-o")
    during = dataclasses.replace(AUTH, spare=spare, rotation="r1")
    assert changed_by(during) == {"Secret/x-auth"}
    swapped = dataclasses.replace(during, engine_password="new-e", operator_password="new-o")
    assert changed_by(swapped) == {"Secret/x-auth", "StatefulSet/x-prefill"}


def test_a_new_agent_token_restarts_nothing():
    assert changed_by(dataclasses.replace(AUTH, agent_token="other")) == {"Secret/x-auth"}


def changed_by(other: AuthMaterial) -> set[str]:
    plan = planned(BOTH)
    pairs = zip(render(plan, AUTH, owner()), render(plan, other, owner()), strict=True)
    return {f"{a['kind']}/{a['metadata']['name']}" for a, b in pairs if a != b}


@pytest.mark.parametrize(("use", "passwords"), [("next", 2), ("previous", 2), ("retired", 1)])
def test_the_acl_file_takes_the_spare_passwords_until_they_are_retired(use: str, passwords: int):
    spare = SparePasswords(use=SpareUse(use), engine_password="e2", operator_password="o2")
    lines = acl_file(dataclasses.replace(AUTH, spare=spare)).splitlines()
    for line, own, other in (
        (lines[1], AUTH.engine_password, "e2"),
        (lines[2], AUTH.operator_password, "o2"),
    ):
        hashes = [word[1:] for word in line.split() if word.startswith("#")]
        wanted = [own, other][:passwords]
        assert sorted(hashes) == sorted(hashlib.sha256(p.encode()).hexdigest() for p in wanted)


def test_passwords_that_change_places_leave_the_acl_file_as_it_is():
    spare = SparePasswords(use=SpareUse.NEXT, engine_password="e2", operator_password="o2")
    before = dataclasses.replace(AUTH, spare=spare)
    after = dataclasses.replace(
        AUTH,
        engine_password="e2",
        operator_password="o2",
        spare=SparePasswords(
            use=SpareUse.PREVIOUS,
            engine_password=AUTH.engine_password,
            operator_password=AUTH.operator_password,
        ),
    )
    assert acl_file(before) == acl_file(after)


def test_instances_spread_over_zones_and_nodes_and_growth_leaves_their_pods_alone():
    small, large = rendered(BOTH), rendered({**BOTH, "kvCache.remote.instancesPerRank": 3})
    assert pod_spec(small, "x-valkey") == pod_spec(large, "x-valkey")
    spread = pod_spec(small, "x-valkey")["topologySpreadConstraints"]
    keys = [each["topologyKey"] for each in spread]
    assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    labels = one(small, "StatefulSet", "x-valkey")["spec"]["selector"]["matchLabels"]
    for each in spread:
        assert each["whenUnsatisfiable"] == "ScheduleAnyway"
        assert each["labelSelector"] == {"matchLabels": labels}


def test_no_password_stands_anywhere_but_in_the_secret():
    for manifest in rendered(BOTH):
        if manifest["kind"] != "Secret":
            for secret in (AUTH.agent_token, AUTH.engine_password, AUTH.operator_password):
                assert secret not in str(manifest)


def test_secrets_do_not_show_in_logs():
    assert "0123456789" not in repr(AUTH)
    assert "0123456789" not in str(AUTH)


def test_the_secret_holds_the_passwords_and_an_acl_file_of_their_hashes():
    data = {
        key: base64.b64decode(value).decode()
        for key, value in one(rendered(BOTH), "Secret", "x-auth")["data"].items()
    }
    assert data["agent-token"] == AUTH.agent_token
    assert data["valkey-engine-password"] == AUTH.engine_password
    assert data["valkey-operator-password"] == AUTH.operator_password
    lines = data["users.acl"].splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["user", "default", "off"],
        ["user", "engine", "on"],
        ["user", "operator", "on"],
    ]
    assert AUTH.engine_password not in data["users.acl"]


def test_the_engine_user_may_touch_keys_and_nothing_else():
    data = one(rendered(BOTH), "Secret", "x-auth")["data"]
    acl = base64.b64decode(data["users.acl"]).decode().splitlines()
    engine = set(acl[1].split())
    assert {"-@all", "+get", "+set", "+exists", "~*", "resetchannels"} <= engine
    for forbidden in ("flushall", "config", "keys", "scan", "eval", "kill", "acl", "+@"):
        assert not [word for word in engine if word.startswith("+") and forbidden in word]


def test_valkey_keeps_nothing_and_evicts_what_is_used_least():
    conf = one(rendered(BOTH), "ConfigMap", "x-valkey")["data"]["valkey.conf"].splitlines()
    for line in (
        'save ""',
        "appendonly no",
        "maxmemory-policy allkeys-lru",
        f"maxmemory {6 << 30}",
        "aclfile /etc/valkey/auth/users.acl",
        "port 6379",
        "databases 4096",
    ):
        assert line in conf
    assert not [line for line in conf if line.startswith("io-threads")]
    more = rendered({**BOTH, "kvCache.remote.resources": {"requests": {"cpu": "4"}}})
    assert "io-threads 3" in one(more, "ConfigMap", "x-valkey")["data"]["valkey.conf"].splitlines()


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, {"x-router"}),
        ({"router.replicas": 1}, set()),
        ({"decode.replicas": 2, "router.replicas": 1}, {"x-decode"}),
        ({"prefill": {"replicas": 3}, "router.replicas": 1}, {"x-prefill"}),
        ({"router.type": "None"}, set()),
    ],
)
def test_a_budget_needs_more_than_one_replica(changes: dict, names: set):
    found = [o for o in rendered(changes) if o["kind"] == "PodDisruptionBudget"]
    assert {o["metadata"]["name"] for o in found} == names
    for manifest in found:
        assert manifest["spec"]["maxUnavailable"] == 1


def test_the_front_door_is_port_80_of_the_object_s_own_name():
    changes = {"router.service": {"type": "LoadBalancer", "annotations": {"a": "b"}}}
    front = one(rendered(changes), "Service", "x")
    assert front["spec"]["type"] == "LoadBalancer"
    assert front["metadata"]["annotations"]["a"] == "b"
    (port,) = front["spec"]["ports"]
    assert (port["port"], port["targetPort"], port["name"]) == (80, "http", "http")


def test_headless_services_have_no_address_and_the_tier_s_names_are_there_before_it_is_ready():
    objects = rendered(BOTH)
    for name in ("x-prefill", "x-decode", "x-valkey", "x-metrics"):
        assert one(objects, "Service", name)["spec"]["clusterIP"] == "None"
    assert one(objects, "Service", "x-valkey")["spec"]["publishNotReadyAddresses"] is True


def test_the_router_may_look_at_pods_and_nothing_else():
    objects = rendered({})
    assert one(objects, "Role", "x-router")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]
    binding = one(objects, "RoleBinding", "x-router")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "x-router", "namespace": "default"}
    ]


def test_the_router_starts_with_workers_and_stays_ready_without():
    spec = one(rendered({"decode.startupTimeout": "1h"}), "Deployment", "x-router")["spec"]
    (found,) = spec["template"]["spec"]["containers"]
    startup = found["startupProbe"]
    assert startup["httpGet"]["path"] == "/readiness"
    assert startup["periodSeconds"] * startup["failureThreshold"] == 3600
    assert found["readinessProbe"]["httpGet"]["path"] == "/health"
    assert spec["progressDeadlineSeconds"] > 3600


def test_objects_that_others_refer_to_come_first():
    order = [manifest["kind"] for manifest in rendered(CPU_SPLIT | TIER)]
    first_workload = min(order.index("StatefulSet"), order.index("Deployment"))
    for kind in ("ServiceAccount", "Secret", "ConfigMap", "Service", "NetworkPolicy"):
        assert max(i for i, k in enumerate(order) if k == kind) < first_workload


def test_a_scrape_interval_is_written_as_prometheus_reads_it() -> None:
    objects = rendered({"metrics.podMonitor": {"interval": "500ms90s1h2m"}})
    endpoints = one(objects, "PodMonitor", "x")["spec"]["podMetricsEndpoints"]
    assert {endpoint["interval"] for endpoint in endpoints} == {"1h3m30s500ms"}
