"""podTemplates: what they may set, what they may not, and what is not even a template."""

import pytest

from tests.unit.stack import CPU, TIER, planned, refused


def engine(**keys: object) -> dict:
    return {"spec": {"containers": [{"name": "engine", **keys}]}}


def pod(**keys: object) -> dict:
    return {"spec": keys}


REFUSED = [
    ("engine.podTemplate", engine(args=["--port"]), ".spec.containers[0].args", "extraArgs"),
    ("engine.podTemplate", engine(image="other"), ".spec.containers[0].image", "image field"),
    ("decode.podTemplate", engine(ports=[]), ".spec.containers[0].ports", "ports"),
    (
        "decode.podTemplate",
        engine(resources={"limits": {"memory": "1Gi"}}),
        ".spec.containers[0].resources",
        "resources field",
    ),
    (
        "decode.podTemplate",
        engine(readinessProbe={"httpGet": {"path": "/", "port": 1}}),
        ".spec.containers[0].readinessProbe",
        "remove",
    ),
    ("decode.podTemplate", engine(lifecycle={}), ".spec.containers[0].lifecycle", "let go"),
    ("decode.podTemplate", engine(envFrom=[]), ".spec.containers[0].envFrom", "env"),
    (
        "decode.podTemplate",
        engine(env=[{"name": "PYTHONHASHSEED", "value": "1"}]),
        ".spec.containers[0].env[0]",
        "remove",
    ),
    (
        "decode.podTemplate",
        engine(env=[{"name": "LMCACHE_REMOTE_URL", "valueFrom": {}}]),
        ".spec.containers[0].env[0]",
        "spec.kvCache",
    ),
    (
        "engine.podTemplate",
        engine(volumeMounts=[{"name": "v", "mountPath": "/dev/shm/"}]),
        ".spec.containers[0].volumeMounts[0]",
        "another path",
    ),
    (
        "engine.podTemplate",
        pod(volumes=[{"name": "shared-memory", "emptyDir": {}}]),
        ".spec.volumes[0]",
        "another name",
    ),
    (
        "engine.podTemplate",
        pod(initContainers=[{"name": "agent", "image": "evil"}]),
        ".spec.initContainers[0].image",
        "image",
    ),
    (
        "engine.podTemplate",
        pod(initContainers=[{"name": "wait-for-tier", "args": []}]),
        ".spec.initContainers[0].args",
        "extraArgs",
    ),
    (
        "engine.podTemplate",
        pod(terminationGracePeriodSeconds=1),
        ".spec.terminationGracePeriodSeconds",
        "drain.timeout",
    ),
    ("engine.podTemplate", pod(shareProcessNamespace=False), ".spec.shareProcessNamespace", "SIG"),
    ("engine.podTemplate", pod(enableServiceLinks=True), ".spec.enableServiceLinks", "VLLM_PORT"),
    ("engine.podTemplate", pod(restartPolicy="Never"), ".spec.restartPolicy", "Always"),
    ("engine.podTemplate", pod(hostNetwork=True), ".spec.hostNetwork", "networkPolicy"),
    (
        "engine.podTemplate",
        {"metadata": {"labels": {"kvserving.io/role": "decode"}}},
        ".metadata.labels.kvserving.io/role",
        "remove",
    ),
    (
        "engine.podTemplate",
        {"metadata": {"annotations": {"a.kvserving.io/x": "y"}}},
        ".metadata.annotations.a.kvserving.io/x",
        "remove",
    ),
    ("engine.podTemplate", {"metadata": {"name": "x"}}, ".metadata.name", "remove"),
    ("engine.podTemplate", {"spec": []}, ".spec", "PodTemplateSpec"),
    ("engine.podTemplate", {"kind": "Pod"}, ".kind", "PodTemplateSpec"),
    ("engine.podTemplate", pod(containers={"engine": {}}), ".spec.containers", "PodTemplateSpec"),
    ("engine.podTemplate", pod(containers=[{"image": "x"}]), ".spec.containers[0]", "PodTemplate"),
    ("engine.podTemplate", pod(containers=["x"]), ".spec.containers[0]", "PodTemplateSpec"),
    (
        "engine.podTemplate",
        pod(containers=[{"name": "a"}, {"name": "a"}]),
        ".spec.containers[1]",
        "PodTemplateSpec",
    ),
    (
        "engine.podTemplate",
        engine(env=[{"value": "1"}]),
        ".spec.containers[0].env[0]",
        "PodTemplateSpec",
    ),
    (
        "engine.podTemplate",
        engine(volumeMounts=[{"name": "v"}]),
        ".spec.containers[0].volumeMounts[0]",
        "PodTemplateSpec",
    ),
    (
        "engine.podTemplate",
        pod(containers=[{"name": "engine", "$patch": "delete"}]),
        ".spec.containers[0].$patch",
        "PodTemplateSpec",
    ),
    (
        "router.podTemplate",
        pod(serviceAccountName="admin"),
        ".spec.serviceAccountName",
        "account of its own",
    ),
    (
        "router.podTemplate",
        pod(containers=[{"name": "router", "args": []}]),
        ".spec.containers[0].args",
        "extraArgs",
    ),
    (
        "kvCache.remote.podTemplate",
        pod(containers=[{"name": "valkey", "image": "redis"}]),
        ".spec.containers[0].image",
        "image field",
    ),
    (
        "kvCache.remote.podTemplate",
        pod(volumes=[{"name": "auth", "emptyDir": {}}]),
        ".spec.volumes[0]",
        "another name",
    ),
]


@pytest.mark.parametrize(("field", "template", "path", "remedy"), REFUSED)
def test_refused_with_field_and_remedy(field: str, template: dict, path: str, remedy: str):
    faults = refused({**TIER, **CPU, field: template})
    where = f"spec.{field}{path}"
    assert where in faults, {name: str(fault) for name, fault in faults.items()}
    assert remedy in f"{faults[where].what} {faults[where].remedy}"


@pytest.mark.parametrize(
    ("field", "template"),
    [
        ("engine.podTemplate", engine(command=["sh", "-c", 'exec vllm serve "$@"', "--"])),
        ("engine.podTemplate", engine(env=[{"name": "NCCL_DEBUG", "value": "INFO"}])),
        ("engine.podTemplate", engine(volumeMounts=[{"name": "v", "mountPath": "/data"}])),
        ("engine.podTemplate", engine(securityContext={"capabilities": {"add": ["SYS_NICE"]}})),
        ("decode.podTemplate", pod(containers=[{"name": "log", "image": "log:1", "args": ["x"]}])),
        ("decode.podTemplate", pod(tolerations=[{"key": "gpu", "operator": "Exists"}])),
        ("decode.podTemplate", pod(serviceAccountName="models", nodeSelector={"a": "b"})),
        (
            "decode.podTemplate",
            pod(initContainers=[{"name": "agent", "resources": {"limits": {"memory": "1Gi"}}}]),
        ),
        ("decode.podTemplate", {"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}}),
        ("router.podTemplate", pod(affinity={})),
        ("kvCache.remote.podTemplate", pod(priorityClassName="high")),
        ("engine.podTemplate", {}),
    ],
)
def test_accepted(field: str, template: dict):
    planned({**TIER, **CPU, field: template})


def test_host_network_is_legal_without_policies():
    planned({"engine.podTemplate": pod(hostNetwork=True), "networkPolicy": {"mode": "Disabled"}})


def test_a_misshapen_template_is_told_once_and_stops_no_other_rule():
    faults = refused({"engine.podTemplate": {"spec": []}, "decode.extraArgs": ["--port"]})
    assert set(faults) == {"spec.engine.podTemplate.spec", "spec.decode.extraArgs[0]"}
