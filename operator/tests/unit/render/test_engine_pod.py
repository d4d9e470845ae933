import subprocess
from pathlib import Path

import pytest

from kvserving_operator.engines import paths
from tests.unit.render import kubelet
from tests.unit.stack import (
    AUTH,
    CPU,
    SPLIT,
    TIER,
    container,
    one,
    pod_spec,
    rendered,
)

BOTH = {**SPLIT, **TIER}


def engine(changes: dict, name: str = "x-decode") -> dict:
    return container(pod_spec(rendered(changes), name), "engine")


def test_the_process_gets_its_arguments_through_the_start_script():
    found = engine({})
    shell, flag, script, zero = kubelet.command(found)
    assert (shell, flag, zero) == ("/bin/sh", "-c", "--")
    assert script.rstrip().endswith('exec vllm serve "$@"')
    assert "id -u" in script


def test_the_start_script_wipes_own_files_and_hands_every_argument_on(tmp_path: Path):
    """Run for real, with the folders and the program replaced."""
    script = kubelet.command(engine({}))[2]
    old = tmp_path / "shm" / "left"
    old.parent.mkdir()
    old.write_text("x")
    (tmp_path / "metrics").mkdir()
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    script = script.replace(paths.SHARED_MEMORY, str(tmp_path / "shm"))
    script = script.replace(paths.PROMETHEUS, str(tmp_path / "metrics"))
    words = ["a b", "$HOME", "`id`", "'", '"', "*", "-x"]
    done = subprocess.run(
        ["/bin/sh", "-c", script, "--", *words],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["serve", *words]
    assert not old.exists()
    assert old.parent.is_dir()


def test_ready_is_what_the_agent_says_and_alive_what_the_engine_says():
    found = engine({})
    assert found["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 9095, "scheme": "HTTP"}
    for probe in ("startupProbe", "livenessProbe"):
        assert found[probe]["httpGet"] == {"path": "/health", "port": 8000, "scheme": "HTTP"}
    assert (
        found["livenessProbe"]["periodSeconds"] * found["livenessProbe"]["failureThreshold"] == 60
    )


@pytest.mark.parametrize(("timeout", "seconds"), [("30m", 1800), ("1h30m", 5400), ("10s", 10)])
def test_the_startup_probe_waits_as_long_as_it_is_told(timeout: str, seconds: int):
    probe = engine({"decode.startupTimeout": timeout})["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == seconds


def test_the_agent_is_a_native_sidecar_before_the_wait_for_the_tier():
    spec = pod_spec(rendered(BOTH), "x-prefill")
    assert [c["name"] for c in spec["initContainers"]] == ["agent", "wait-for-tier"]
    agent = container(spec, "agent")
    assert agent["restartPolicy"] == "Always"
    assert agent["args"] == ["kvserving-agent", "serve"]
    assert kubelet.environment(agent, {}) == {
        "KVSERVING_AGENT_ROLE": "prefill",
        "KVSERVING_AGENT_ENGINE_URL": "http://127.0.0.1:8000",
        "KVSERVING_AGENT_ENGINE_TYPE": "VLLM",
        "KVSERVING_AGENT_TOKEN_FILE": "/etc/kvserving/auth/agent-token",
        "KVSERVING_AGENT_PORT": "9095",
        "KVSERVING_AGENT_RUN_FOLDER": "/run/kvserving/agent",
        "KVSERVING_AGENT_DRAIN_TIMEOUT": "120s",
        "KVSERVING_AGENT_DRAIN_LEASE": "50s",
        "KVSERVING_AGENT_POD_UID": "from elsewhere",
    }
    assert container(spec, "wait-for-tier")["args"] == [
        "kvserving-agent",
        "wait-for-tier",
        "--timeout",
        "60s",
        "x-valkey-0.x-valkey.default.svc:6379",
    ]


@pytest.mark.parametrize(
    ("name", "bound", "grace", "lease"),
    [("x-prefill", "95", 120, "30s"), ("x-decode", "305", 330, "0s")],
)
def test_the_engine_is_drained_before_it_is_stopped(name: str, bound: str, grace: int, lease: str):
    drains = {"prefill.drain": {"timeout": "60s", "lease": "30s"}, "decode.drain.timeout": "5m"}
    spec = pod_spec(rendered({**BOTH, **drains}), name)
    found, agent = container(spec, "engine"), container(spec, "agent")
    command = found["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:3] == ["python3", "-I", "-S"]
    folder = kubelet.environment(agent, {})["KVSERVING_AGENT_RUN_FOLDER"]
    assert command[3:] == [f"{folder}/drain.py", f"{folder}/agent.sock", bound]
    assert kubelet.environment(agent, {})["KVSERVING_AGENT_DRAIN_LEASE"] == lease
    # What the engine does with its last requests after SIGTERM still fits in.
    assert spec["terminationGracePeriodSeconds"] == grace >= int(bound) + 20
    mounts = {c["name"]: {m["name"]: m for m in c["volumeMounts"]} for c in (found, agent)}
    assert mounts["engine"]["agent"] == {"name": "agent", "mountPath": folder, "readOnly": True}
    assert mounts["agent"]["agent"] == {"name": "agent", "mountPath": folder}


def test_a_role_without_the_tier_does_not_wait_and_sees_no_file_of_it():
    spec = pod_spec(rendered(BOTH), "x-decode")
    assert [c["name"] for c in spec["initContainers"]] == ["agent"]
    assert "lmcache" not in [volume["name"] for volume in spec["volumes"]]


def test_only_the_agent_sees_the_token_and_nobody_the_passwords():
    spec = pod_spec(rendered(BOTH), "x-prefill")
    auth = next(v for v in spec["volumes"] if v["name"] == "auth")
    assert [item["key"] for item in auth["secret"]["items"]] == ["agent-token"]
    mounts = {
        c["name"]: [mount["name"] for mount in c.get("volumeMounts", [])]
        for c in [*spec["containers"], *spec["initContainers"]]
    }
    assert [name for name, volumes in mounts.items() if "auth" in volumes] == ["agent"]


def test_the_engine_reaches_its_tier_with_the_secret_s_password():
    found = engine(BOTH, "x-prefill")
    secrets = {"valkey-engine-password": AUTH.engine_password}
    url = kubelet.environment(found, secrets)["LMCACHE_REMOTE_URL"]
    assert url.startswith(
        f"redis://engine:{AUTH.engine_password}@x-valkey-0.x-valkey.default.svc:6379/"
    )


def test_pods_pass_the_restricted_level():
    objects = rendered(BOTH)
    for kind, name in (
        ("StatefulSet", "x-prefill"),
        ("StatefulSet", "x-decode"),
        ("StatefulSet", "x-valkey"),
        ("Deployment", "x-router"),
    ):
        spec = pod_spec(objects, name, kind)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for found in [*spec["containers"], *spec.get("initContainers", [])]:
            context = found["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
        assert not any("hostPath" in volume for volume in spec["volumes"])


def test_only_the_router_has_a_token_of_the_api():
    objects = rendered(BOTH)
    for name in ("x-prefill", "x-decode", "x-valkey"):
        assert pod_spec(objects, name)["automountServiceAccountToken"] is False
    router = pod_spec(objects, "x-router", "Deployment")
    assert router["automountServiceAccountToken"] is True
    assert router["serviceAccountName"] == "x-router"


def test_rdma_locks_memory_and_tcp_does_not():
    rdma = engine({"decode.rdma": {"resources": {"rdma/ib": "1"}}})
    assert rdma["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert "add" not in engine({})["securityContext"]["capabilities"]


def test_writable_places_are_volumes_of_the_pod():
    found = engine(CPU)
    places = {mount["mountPath"] for mount in found["volumeMounts"] if not mount.get("readOnly")}
    environment = kubelet.environment(found, {})
    for name in (
        "HOME",
        "PROMETHEUS_MULTIPROC_DIR",
        "HF_HOME",
        "XDG_CACHE_HOME",
        "VLLM_CACHE_ROOT",
    ):
        assert any(environment[name].startswith(place) for place in places), name


def test_the_shared_memory_volume_is_limited():
    spec = pod_spec(rendered({"decode.parallelism": {"tensor": 4}}), "x-decode")
    shared = next(v for v in spec["volumes"] if v["name"] == "shared-memory")
    assert shared["emptyDir"] == {"medium": "Memory", "sizeLimit": "4Gi"}


def test_only_the_operator_replaces_engine_pods():
    for name in ("x-prefill", "x-decode", "x-valkey"):
        spec = one(rendered(BOTH), "StatefulSet", name)["spec"]
        assert spec["updateStrategy"] == {"type": "OnDelete"}
        assert spec["podManagementPolicy"] == "Parallel"
        assert spec["serviceName"] == name


def test_workload_labels_are_on_pods_and_statefulset_but_not_in_the_selector():
    changes = {"decode.workloadLabels": {"queue": "q"}, "decode.workloadAnnotations": {"a": "b"}}
    found = one(rendered(changes), "StatefulSet", "x-decode")
    assert found["metadata"]["labels"]["queue"] == "q"
    assert found["spec"]["template"]["metadata"]["labels"]["queue"] == "q"
    assert found["metadata"]["annotations"]["a"] == "b"
    assert found["spec"]["template"]["metadata"]["annotations"]["a"] == "b"
    assert "queue" not in found["spec"]["selector"]["matchLabels"]


def test_a_user_s_volume_source_is_handed_on():
    changes = {
        "engine.cacheVolume": {"persistentVolumeClaim": {"claimName": "c"}},
        "model.volume": {"path": "/m", "readOnly": False, "nfs": {"server": "s", "path": "/p"}},
    }
    spec = pod_spec(rendered(changes), "x-decode")
    sources = {volume["name"]: volume for volume in spec["volumes"]}
    assert sources["compile-cache"]["persistentVolumeClaim"] == {"claimName": "c"}
    assert sources["model"]["nfs"] == {"server": "s", "path": "/p"}
    assert sources["hub-cache"]["emptyDir"] == {}
    mount = next(m for m in container(spec, "engine")["volumeMounts"] if m["name"] == "model")
    assert mount == {"name": "model", "mountPath": "/m"}
