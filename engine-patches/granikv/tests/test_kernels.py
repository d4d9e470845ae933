"""Every kernel path against the f32 reference (invariants 9-12), outputs poisoned with NaN."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from granikv import reference  # noqa: E402
from granikv.backends import Fixed, Mode  # noqa: E402
from granikv.kernels import launch  # noqa: E402
from granikv.plan import make_plan  # noqa: E402
from granikv.shapes import Path  # noqa: E402
from tests.scenes import NAN, Scene, class_paths, make_scene  # noqa: E402

pytestmark = pytest.mark.kernels

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
DTYPE = torch.bfloat16 if ON_GPU else torch.float32
BOUND = 5e-3 if ON_GPU else 2e-6

SCENES = {
    "one class": dict(trees=[([100], 5)]),
    "mixed classes, nested, and requests without any": dict(
        trees=[([130], 3), ([130, 70], 4), ([257], 2), ([], 3)], seed=1
    ),
    "prefix a whole number of blocks, no suffix": dict(trees=[([128], 6)], suffix=(0, 0), seed=2),
    "suffix of one": dict(trees=[([65], 3), ([64], 1)], suffix=(1, 1), seed=3),
    "a prefix of one token": dict(trees=[([1], 2), ([3, 1], 2)], seed=4),
    "groups of 2": dict(trees=[([90], 9), ([66], 2)], group=2, kv_heads=1, seed=13),
    "groups of 3": dict(trees=[([90], 7), ([66], 2)], group=3, kv_heads=1, seed=14),
    "groups of 6": dict(trees=[([90], 6), ([66], 2)], group=6, kv_heads=1, seed=15),
    "groups of 5": dict(trees=[([200], 14), ([90], 2)], group=5, kv_heads=1, seed=5),
    "groups of 7, one head a rank": dict(trees=[([150], 10)], group=7, kv_heads=1, seed=6),
    "groups of 8": dict(trees=[([150], 9), ([70], 1)], group=8, kv_heads=1, seed=7),
    "no grouping": dict(trees=[([150], 70)], group=1, kv_heads=1, seed=8),
    "head dim 128": dict(trees=[([100], 4), ([60], 2)], dim=128, seed=9),
    "many workers, many pieces": dict(trees=[([700], 2), ([300], 3)], slots=40, seed=10),
    "few requests in many pieces": dict(
        trees=[([80], 1), ([], 1)], suffix=(700, 760), programs=90, seed=12
    ),
    "long suffixes, split": dict(trees=[([80], 2), ([], 1)], suffix=(150, 330), seed=11),
}  # fmt: skip


def scene(name: str, **changes: object) -> Scene:
    return make_scene(**(SCENES[name] | changes), device=DEVICE, dtype=DTYPE)  # type: ignore[arg-type]


def run(made: Scene, space, mode: Mode, *, tma: bool = False, fixed: bool = False):  # type: ignore[no-untyped-def]
    out = torch.full_like(made.q, NAN)
    lse = torch.full(made.q.shape[:2], NAN, device=DEVICE)
    space.run(
        made.q, made.layer(tma=tma), made.table, made.lengths, out, lse,
        mode=mode, page=made.page, fixed=Fixed(programs=5) if fixed else None,
    )  # fmt: skip
    return out, lse


def check(made: Scene, out, lse, bound: float = BOUND) -> None:  # type: ignore[no-untyped-def]
    k, v = made.k.float(), made.v.float()
    table = made.table
    if made.page > 1:
        position = torch.arange(table.shape[1] * made.page, device=DEVICE)
        table = table[:, position // made.page] * made.page + position % made.page
    want, want_lse = reference.step(made.q, k, v, table, made.lengths, made.heads.scale)
    assert reference.relative_error(out, want) < bound
    some = want_lse > float("-inf")
    assert torch.equal(lse == float("-inf"), ~some)
    assert torch.allclose(lse[some], want_lse[some], atol=0.02 if bound > 1e-3 else 1e-4)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", list(SCENES))
def test_every_mode_agrees_with_the_reference(name: str, mode: Mode) -> None:
    made = scene(name)
    check(made, *run(made, made.workspace(mode=mode), mode))


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("mode", list(Mode))
def test_every_mode_in_half_precision(mode: Mode, dim: int) -> None:
    name = "mixed classes, nested, and requests without any"
    made = make_scene(**SCENES[name] | {"dim": dim}, device=DEVICE, dtype=torch.float16)  # type: ignore[arg-type]
    check(made, *run(made, made.workspace(mode=mode), mode), bound=5e-3)


@pytest.mark.parametrize("name", ["one class", "mixed classes, nested, and requests without any"])
@pytest.mark.parametrize("mode", [Mode.FUSED, Mode.OVERLAP])
def test_descriptors_and_pointers_agree(name: str, mode: Mode) -> None:
    made = scene(name)
    check(made, *run(made, made.workspace(mode=mode), mode, tma=True))


@pytest.mark.parametrize("mode", list(Mode))
def test_everything_through_the_slot_table(mode: Mode) -> None:
    made = scene("mixed classes, nested, and requests without any")
    check(made, *run(made, made.workspace(path=Path.PAGED), mode))


@pytest.mark.parametrize("name", ["mixed classes, nested, and requests without any", "groups of 5"])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_cascade_over_pages_is_the_same(name: str, mapped: bool) -> None:
    """Level 0 through the slot table of each class's first request instead of its slab."""
    made = scene(name)
    rows = torch.arange(made.table.shape[0], device=DEVICE, dtype=torch.int32).flip(0)
    space = made.workspace()
    want, want_lse = run(made, space, Mode.FUSED)
    out, lse = torch.full_like(want, NAN), torch.full_like(want_lse, NAN)
    table = made.table.flip(0).contiguous() if mapped else made.table
    space.run(
        made.q, made.layer(tma=False), table, made.lengths, out, lse, mode=Mode.FUSED,
        rows=rows if mapped else None, pages=True,
    )  # fmt: skip
    assert torch.equal(out, want)
    assert torch.equal(lse, want_lse)


def test_one_step_mixes_paths() -> None:
    made = scene("mixed classes, nested, and requests without any")
    space = made.workspace()
    plan = make_plan(made.running, made.grain, space.shape, class_paths(cheap=100))  # type: ignore[arg-type]
    assert {c.path for c in plan.classes} == {Path.PAGED, Path.CASCADE}
    space.load(plan)
    check(made, *run(made, space, Mode.FUSED))


@pytest.mark.parametrize("name", ["one class", "mixed classes, nested, and requests without any"])
def test_dense_level0(name: str) -> None:
    made = scene(name)
    check(made, *run(made, made.workspace(path=Path.DENSE), Mode.FUSED))


@pytest.mark.parametrize("page", [4, 16])
def test_pages_of_several_slots(page: int) -> None:
    made = scene("long suffixes, split", page=page)
    table = torch.zeros_like(made.table[:, : -(-made.table.shape[1] // page)])
    spans = all(not r.spans for r in made.running)
    if not spans:  # slabs are not page-aligned here: give every request a plain paged history
        made = make_scene([([], 6)], suffix=(150, 330), page=page, device=DEVICE, dtype=DTYPE)
        table = made.table[:, ::page] // page
    made.table = table.contiguous()
    for mode in (Mode.FUSED, Mode.SPLIT):
        check(made, *run(made, made.workspace(mode=mode), mode))


@pytest.mark.parametrize("mode", list(Mode))
def test_fixed_launch_sizes_give_the_same(mode: Mode) -> None:
    made = scene("long suffixes, split")
    space = made.workspace(ranges=64, items=64)
    want = run(made, space, mode)
    space.po.fill_(NAN)
    space.pl.fill_(NAN)
    got = run(made, space, mode, fixed=True)
    assert torch.equal(got[0], want[0])


@pytest.mark.parametrize("mode", [Mode.FUSED, Mode.SPLIT])
def test_rows_of_the_table_can_be_the_engines(mode: Mode) -> None:
    """Request r reads row rows[r], int64 lengths as SGLang has them; another row would be wrong."""
    made = scene("mixed classes, nested, and requests without any")
    batch = made.q.shape[0]
    rows = torch.randperm(batch + 3, device=DEVICE)[:batch]
    table = torch.zeros(batch + 3, made.table.shape[1], dtype=torch.int32, device=DEVICE)
    table[rows] = made.table.to(torch.int32)
    space = made.workspace(mode=mode)
    out = torch.full_like(made.q, NAN)
    lse = torch.full(made.q.shape[:2], NAN, device=DEVICE)
    space.run(
        made.q, made.layer(tma=False), table, made.lengths.long(), out, lse, mode=mode,
        fixed=Fixed(programs=2), rows=rows,
    )  # fmt: skip
    check(made, out, lse)


@pytest.mark.skipif(not ON_GPU, reason="graphs are a GPU's")
@pytest.mark.parametrize("mode", list(Mode))
def test_a_captured_graph_follows_the_plan_in_the_buffer(mode: Mode) -> None:
    """Capture with one plan, then other members, other cuts, other lengths: only data changes."""
    one, two = (scene("mixed classes, nested, and requests without any", seed=s) for s in (1, 21))
    space = one.workspace(mode=mode, ranges=256, items=256)
    plan = space.plan_in_force
    other = make_plan(two.running, mode.grain(two.grain), space.shape)
    k, v = (torch.cat([a, b]) for a, b in ((one.k, two.k), (one.v, two.v)))
    shift = one.k.shape[0]
    q, table, lengths = (
        one.q.clone(),
        torch.zeros(12, 400, dtype=torch.int32, device=DEVICE),
        one.lengths.clone(),
    )
    table[:, : one.table.shape[1]] = one.table
    layer = launch.Layer.of(k, v, tma=True)
    out, lse = torch.full_like(q, NAN), torch.full(q.shape[:2], NAN, device=DEVICE)

    def call() -> None:
        space.run(q, layer, table, lengths, out, lse, mode=mode, fixed=Fixed())

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    check(one, out, lse)
    del plan
    other.view("items")[: other.items, 2] += shift
    q.copy_(two.q)
    lengths.copy_(two.lengths)
    table[:, : two.table.shape[1]] = two.table + shift
    space.load(other)
    out.fill_(NAN)
    graph.replay()
    check(two, out, lse)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_same_plan_gives_the_same_bits(mode: Mode) -> None:
    made = scene("mixed classes, nested, and requests without any")
    space = made.workspace()
    first, again = run(made, space, mode), run(made, space, mode)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])


@pytest.mark.parametrize("mode", list(Mode))
def test_a_plan_stays_right_while_the_tails_grow(mode: Mode) -> None:
    made = scene("one class", suffix=(10, 20))
    space = made.workspace()
    made.lengths -= 7
    check(made, *run(made, space, mode))


def test_any_split_of_the_keys_merges_to_the_same() -> None:
    made = scene("many workers, many pieces")
    outs = []
    for slots in (2, 6, 22, 40):
        made.grain = type(made.grain)(
            made.heads.kv_heads, made.heads.group, slots=slots, range_programs=16
        )
        outs.append(run(made, made.workspace(), Mode.SPLIT)[0])
    for out in outs[1:]:
        assert reference.relative_error(out, outs[0]) < BOUND


def test_copy_slots_moves_both_tensors() -> None:
    k = torch.randn(64, 2, 64, device=DEVICE).to(DTYPE)
    v = torch.randn(64, 2, 64, device=DEVICE).to(DTYPE)
    source = torch.arange(3, 22, device=DEVICE, dtype=torch.int32)
    target = torch.arange(40, 59, device=DEVICE, dtype=torch.int32).flip(0).contiguous()
    want_k, want_v = k.clone(), v.clone()
    want_k[target.long()], want_v[target.long()] = k[source.long()], v[source.long()]
    launch.copy_slots(k, v, source, target)
    assert torch.equal(k, want_k)
    assert torch.equal(v, want_v)
