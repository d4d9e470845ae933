import pytest

from tests.unit.stack import CPU, TIER, planned, refused

CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}


@pytest.mark.parametrize(
    "path",
    [
        "/dev/shm",
        "/dev",
        "/run",
        "/etc",
        "/tmp",
        "/var",
        "/run/kvserving/prometheus/x",
        "/etc/kvserving/auth",
    ],
)
def test_a_mount_that_hides_the_operator_s_is_refused(path: str):
    assert (
        "another path"
        in refused({"model.cache": {"mountPath": path}})["spec.model.cache.mountPath"].remedy
    )


@pytest.mark.parametrize("path", ["/a/../b", "/a//b", "/a/./b", "/a/", "/a:b"])
def test_a_path_that_is_not_plain_is_refused(path: str):
    assert "spec.model.volume.path" in refused({"model.volume": {"path": path, **CLAIM}})


@pytest.mark.parametrize("path", ["/models/hf", "/tmp/hf", "/mnt", "/runtime"])
def test_other_paths_are_free(path: str):
    planned({"model.cache": {"mountPath": path}})


def test_weights_and_hub_cache_need_two_paths():
    changes = {"model.volume": {"path": "/m", **CLAIM}, "model.cache": {"mountPath": "/m", **CLAIM}}
    assert "spec.model.volume.path" in refused(changes)


def test_a_volume_needs_one_source():
    assert "spec.model.volume" in refused({"model.volume": {"path": "/m"}})
    two = {"path": "/m", **CLAIM, "emptyDir": {}}
    assert "several" in refused({"model.volume": two})["spec.model.volume"].what
    assert "spec.engine.cacheVolume" in refused({"engine.cacheVolume": {**CLAIM, "emptyDir": {}}})


@pytest.mark.parametrize(
    "amount", ["4 Gi", "4GB", "", "-1", "1e999", True, None, {}, [1], "\u0664"]
)
def test_what_is_no_quantity_is_refused(amount: object):
    changes = {**CPU, "decode.resources": {"limits": {"memory": amount}}}
    assert "spec.decode.resources.limits.memory" in refused(changes)


def test_a_misshapen_resources_is_refused():
    assert "spec.router.resources.limits" in refused({"router.resources": {"limits": ["cpu"]}})


def test_counted_devices_and_the_tier_s_memory_have_their_fields():
    gpu = {"decode.resources": {"limits": {"nvidia.com/gpu": "4"}}}
    assert "parallelism" in refused(gpu)["spec.decode.resources.limits.nvidia.com/gpu"].remedy
    rdma = {
        "decode.rdma": {"resources": {"rdma/ib": "1"}},
        "decode.resources": {"requests": {"rdma/ib": "1"}},
    }
    assert "spec.decode.resources.requests.rdma/ib" in refused(rdma)
    memory = {**TIER, **CPU, "kvCache.remote.resources": {"limits": {"memory": "1Gi"}}}
    fault = refused(memory)["spec.kvCache.remote.resources.limits.memory"]
    assert "memoryPerInstance" in fault.remedy


@pytest.mark.parametrize("key", ["a b", "-a", "a/b/c", "/a", "A.b/", "\u00e9", "x" * 64, "_/a"])
def test_an_illegal_label_key_is_refused(key: str):
    assert "spec.decode.workloadLabels" in refused({"decode.workloadLabels": {key: "v"}})


@pytest.mark.parametrize("key", ["a", "kueue.x-k8s.io/queue-name", "a.b_c-d", "x" * 63])
def test_a_qualified_label_key_is_legal(key: str):
    planned({"decode.workloadLabels": {key: "v"}, "decode.workloadAnnotations": {key: "v"}})
