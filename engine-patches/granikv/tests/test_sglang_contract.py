"""What the plugin takes from SGLang, checked against the text of real wheels (`run.sh contract`).

Nothing of SGLang is imported: its dependencies want a GPU machine.  What the prefix caches and
the allocator do with these contracts is tested in `test_sglang_adapter`.
"""

import ast
import importlib.util
import os
import sys
import types
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("GRANIKV_SGLANG_WHEELS", "/nonexistent"))
RAN, OTHER = "0.5.17", "0.5.23"
pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason="run.sh contract fetches the wheels")
PLUGIN = Path(__file__).parent.parent / "granikv" / "sglang"


@cache
def tree(version: str, module: str) -> ast.Module:
    path = ROOT / version / (module.replace(".", "/") + ".py")
    if not path.is_file():
        path = ROOT / version / module.replace(".", "/") / "__init__.py"
    return ast.parse(path.read_text())


def names(version: str, module: str) -> set[str]:
    """Everything a module binds at its top level, imports included."""
    found: set[str] = set()
    for node in ast.walk(tree(version, module)):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found |= {(a.asname or a.name).split(".")[0] for a in node.names}
    for node in tree(version, module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def klass(version: str, module: str, name: str) -> ast.ClassDef:
    (found,) = [
        n for n in tree(version, module).body if isinstance(n, ast.ClassDef) and n.name == name
    ]
    return found


def method(owner: ast.ClassDef, name: str) -> ast.FunctionDef:
    (found,) = [n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == name]
    return found


def parameters(function: ast.FunctionDef) -> list[str]:
    a = function.args
    return [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]


def abstract(owner: ast.ClassDef) -> set[str]:
    return {
        n.name
        for n in owner.body
        if isinstance(n, ast.FunctionDef)
        and "abstractmethod" in ast.dump(ast.Tuple(n.decorator_list))
    }


def fields(owner: ast.ClassDef) -> set[str]:
    return {
        n.target.id
        for n in owner.body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }


def ours(file: str, name: str) -> set[str]:
    for node in ast.parse((PLUGIN / file).read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
    raise AssertionError(name)


def hooks() -> dict[str, str]:
    for node in ast.parse((PLUGIN / "plugin.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "HOOKS":  # type: ignore[attr-defined]
            return ast.literal_eval(node.value)  # type: ignore[no-any-return]
    raise AssertionError("HOOKS")


@pytest.mark.parametrize("version", [RAN, OTHER])
def test_every_hook_point_exists(version: str) -> None:
    for target in hooks().values():
        parts = target.split(".")
        if parts[-2][0].isupper():
            method(klass(version, ".".join(parts[:-2]), parts[-2]), parts[-1])
        else:
            assert parts[-1] in names(version, ".".join(parts[:-1])), target


@pytest.mark.parametrize("version", [RAN, OTHER])
def test_every_name_that_we_import_exists(version: str) -> None:
    missing = []
    for file in PLUGIN.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang."):
                have = names(version, node.module or "")
                missing += [f"{node.module}.{a.name}" for a in node.names if a.name not in have]
    assert missing == []


@pytest.mark.parametrize("version", [RAN, OTHER])
def test_the_allocator_is_built_and_subclassed_as_we_do(version: str) -> None:
    base = klass(version, "sglang.srt.mem_cache.allocator.base", "BaseTokenToKVPoolAllocator")
    assert abstract(base) <= ours("allocator.py", "GraniAllocator")
    wanted = ["self", "size", "page_size", "dtype", "device", "kvcache", "need_sort"]
    assert parameters(method(base, "__init__"))[:7] == wanted
    calls = [
        {k.arg for k in n.keywords}
        for n in ast.walk(tree(version, "sglang.srt.mem_cache.kv_cache_configurator"))
        if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "TokenToKVPoolAllocator"
    ]
    assert calls == [{"dtype", "device", "kvcache", "need_sort"}]


@pytest.mark.parametrize("version", [RAN, OTHER])
def test_the_attention_backend_overrides_what_is_there(version: str) -> None:
    module = "sglang.srt.layers.attention.triton_backend"
    parent = klass(version, module, "TritonAttnBackend")
    for name in ("forward_decode", "init_forward_metadata", "init_forward_metadata_out_graph"):
        assert method(parent, name)
    assert parameters(method(parent, "forward_decode"))[:7] == [
        "self", "q", "k", "v", "layer", "forward_batch", "save_kv_cache",
    ]  # fmt: skip
    assert parameters(method(parent, "init_forward_metadata_out_graph")) == [
        "self", "forward_batch", "in_capture",
    ]  # fmt: skip
    assert parameters(method(parent, "_set_kv_buffer"))[1:7] == [
        "forward_batch", "layer", "loc_info", "k", "v", "k_scale",
    ]  # fmt: skip
    text = ast.unparse(method(parent, "__init__"))
    for attribute in ("num_head", "req_to_token", "max_context_len", "device"):
        assert f"self.{attribute} = " in text


@pytest.mark.parametrize("version", [RAN, OTHER])
def test_arguments_that_we_read_are_fields_of_the_servers(version: str) -> None:
    have = fields(klass(version, "sglang.srt.server_args", "ServerArgs"))
    for file in (ROOT / version / "sglang/srt/arg_groups/fields").glob("*.py"):  # newer versions
        for node in ast.parse(file.read_text()).body:
            have |= fields(node) if isinstance(node, ast.ClassDef) else set()
    wanted = {
        "attention_backend", "decode_attention_backend", "page_size", "tp_size", "pp_size",
        "speculative_algorithm", "disable_prefill_cuda_graph", "cuda_graph_bs_decode",
    }  # fmt: skip
    assert wanted <= have


def test_the_prefix_cache_is_that_of_the_version_that_ran() -> None:
    module = "sglang.srt.mem_cache.base_prefix_cache"
    assert abstract(klass(RAN, module, "BasePrefixCache")) <= ours("prefix.py", "GraniCache")
    required = {"device_indices", "last_device_node", "last_host_node", "best_match_node"}
    assert required <= fields(klass(RAN, module, "MatchResult"))


def test_the_later_prefix_cache_is_that_of_the_other_version() -> None:
    module = "sglang.srt.mem_cache.base_prefix_cache"
    base = klass(OTHER, module, "BasePrefixCache")
    mine = ours("prefix.py", "GraniCache") | ours("prefix_0523.py", "CheckpointCache")
    assert abstract(base) <= mine
    assert "checkpoint" in abstract(base), "else the adapter of the version that ran would do"
    result = klass(OTHER, module, "MatchResult")
    given = {"device_prefix_len", "last_device_node", "last_host_node", "best_match_node"}
    without_default = {
        n.target.id
        for n in result.body
        if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name) and n.value is None
    }
    assert without_default == given
    assert parameters(method(base, "checkpoint")) == ["self", "req", "up_to"]
    for name in ("lock", "unlock", "path_device_indices", "prefix_device_indices"):
        assert method(base, name)
    record = fields(klass(OTHER, "sglang.srt.managers.schedule_batch", "ReqKvInfo"))
    assert {"req_pool_idx", "cache_protected_len", "cache_inserted_len"} <= record


@pytest.mark.parametrize("version", [RAN, OTHER])
def test_the_scheduler_has_what_the_steps_read(version: str) -> None:
    module = "sglang.srt.managers.scheduler"
    text = ast.unparse(tree(version, module))
    for attribute in (
        "token_to_kv_pool_allocator", "req_to_token_pool", "forward_stream", "schedule_stream",
        "enable_overlap", "chunked_req",
    ):  # fmt: skip
        assert f"self.{attribute}" in text, attribute
    run = method(klass(version, module, "Scheduler"), "run_batch")
    assert parameters(run)[:2] == ["self", "batch"]
    retract = method(
        klass(version, "sglang.srt.managers.schedule_batch", "ScheduleBatch"), "retract_decode"
    )
    returned = [n.value for n in ast.walk(retract) if isinstance(n, ast.Return)]
    assert all(isinstance(value, ast.Tuple) for value in returned), "the first are requests"
    location = klass(version, "sglang.srt.mem_cache.memory_pool", "KVWriteLoc")
    order = [n.target.id for n in location.body if isinstance(n, ast.AnnAssign)]  # type: ignore[union-attr]
    assert order[:2] == ["loc", "swa_loc"]
    context = klass(version, "sglang.srt.mem_cache.registry", "TreeCacheBuildContext")
    assert {"params", "disable_radix_cache"} <= fields(context)


def test_only_what_served_is_hooked_unasked() -> None:
    from granikv.sglang.plugin import CHECKPOINT, KNOWN, UNSERVED, supported  # noqa: PLC0415

    assert set(KNOWN) == {RAN}
    assert set(UNSERVED) == {OTHER} == CHECKPOINT
    assert supported(RAN, "")
    assert not supported(OTHER, "")
    assert supported(OTHER, OTHER)
    assert not supported(OTHER, RAN)
    assert not supported("0.6.0", "0.6.0"), "no adapter is known for it"


@pytest.mark.parametrize("version", [RAN, OTHER])
def test_the_real_hook_registry_applies_our_kinds_of_hooks(version: str) -> None:
    """Class REPLACE whose __new__ returns something else, AROUND, BEFORE and AFTER."""
    path = ROOT / version / "sglang/srt/plugins/hook_registry.py"
    spec = importlib.util.spec_from_file_location(f"registry_{version.replace('.', '_')}", path)
    assert spec and spec.loader  # noqa: PT018
    registry = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = registry
    spec.loader.exec_module(registry)

    class Stock:
        pass

    class Chosen(Stock):
        def __new__(cls, *, ours: bool = False) -> object:  # type: ignore[misc]
            return "ours" if ours else super().__new__(cls)

    target = types.ModuleType("granikv_fake_target")
    target.Stock, target.build = Stock, lambda x: x + 1  # type: ignore[attr-defined]
    target.Loop = type("Loop", (), {"step": lambda self, a: a})  # type: ignore[attr-defined]
    sys.modules["granikv_fake_target"] = target
    seen: list[object] = []
    kinds = registry.HookType
    add = registry.HookRegistry.register
    add("granikv_fake_target.Stock", Chosen, kinds.REPLACE)
    add("granikv_fake_target.build", lambda original, x: original(x) * 10, kinds.AROUND)
    add("granikv_fake_target.Loop.step", lambda self, a: seen.append(a), kinds.BEFORE)
    add("granikv_fake_target.Loop.step", lambda result, self, a: seen.append(-result), kinds.AFTER)
    registry.HookRegistry.apply_hooks()
    assert target.Stock(ours=True) == "ours"  # type: ignore[attr-defined]
    assert isinstance(target.Stock(), Stock)  # type: ignore[attr-defined]
    assert target.build(1) == 20  # type: ignore[attr-defined]
    assert target.Loop().step(4) == 4  # type: ignore[attr-defined]
    assert seen == [4, -4]
