"""Facts from the series of agents' pages: the same as from the agents, and never what is old."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kvserving_agent import states
from kvserving_agent.facts import Answer, Fault, Sample, Snapshot
from kvserving_agent.identity import Source, StartId
from kvserving_agent.latency import Histogram
from kvserving_agent.progress import Stall
from kvserving_agent.states import StoreState
from kvserving_agent.sums import Sums, fold
from kvserving_operator.fit import EngineRecords, Fit, Recent, estimate, observe
from kvserving_operator.fit.records import LOAD_FIELDS, STEP_FIELDS
from kvserving_operator.measure import EngineFacts, parse
from kvserving_operator.observe.promql import Series
from kvserving_operator.observe.scraped import facts_of
from tests.unit.fit.workload import MIXES, PAPER_MIX, Workload
from tests.unit.observe.scrapes import LABELS, Scrapes, answer

POD = "x-prefill-0"
STORE = StoreState(
    at=98.0,
    start="s1",
    capabilities=("AsyncLoading", "ShardedStore"),
    closed=None,
    settings={
        "mode": "Auto",
        "minTokens": 512,
        "model": {"R": 5e4, "s": 5e4, "B": 1e10, "te": 0.2, "tw": 0.1},
    },
    since=1_800_000_000.0,
    counters={"busy_share": 0.25, "bytes_read": 4096, "decision_async_LoadCheaper": 3},
    recent=None,
)
KNOWN = Snapshot(
    start=StartId("e1", Source.SOCKET),
    health=Answer(at=99.0, good=True),
    models=Answer(at=99.0, good=True),
    model="tiny",
    version="0.33.0",
    sample=Sample(
        at=97.0,
        values={"running": 3, "kvCacheUsage": 0.125, "promptTokens": 2**53, "waiting": None},
        latencies={
            "request": Histogram(edges=(0.3, 0.5, 0.8, None), counts=(4, 0, 2), seconds=9.25),
            "firstToken": Histogram(edges=(), counts=(), seconds=0.0),
            "interToken": Histogram(edges=(0.0, 0.025), counts=(7,), seconds=None),
        },
    ),
    store=STORE,
    hot=replace(
        STORE, start="h1", settings={"hotPercent": 20, "hotPercentWanted": 25}, counters={}
    ),
    hot_error=Fault.TIMEOUT,
    stall=Stall((1.0, None, None), since=60.0, scrapes=9),
)
HERE = {POD: "uid"}


def read(scrapes: Scrapes, now: float = 1000.0, pods: dict[str, str] = HERE) -> EngineFacts | None:
    return facts_of(scrapes.answers, namespace="ns", pods=pods, now=now)[next(iter(pods))]


@pytest.mark.parametrize(
    "known",
    [
        KNOWN,
        Snapshot(),
        replace(KNOWN, store=None, store_error=Fault.REFUSED, sample=None),
        replace(
            KNOWN, store=replace(STORE, closed="KVRoundTripMismatch", settings={}, counters={})
        ),
        replace(KNOWN, health=Answer(at=99.0, good=False), start=None),
    ],
)
@pytest.mark.parametrize("carries", [(True, True), (True, False), (False, False)])
def test_the_same_as_the_agent_answers(known: Snapshot, carries: tuple[bool, bool]):
    said = answer(known, stores=carries[0], hots=carries[1])
    scrapes = Scrapes()
    scrapes.scrape(1000.0, said)
    direct, found = parse(POD, said), read(scrapes)
    assert direct is not None
    assert found is not None
    if found.store is not None:
        found = replace(found, store=replace(found.store, recent=None))
    assert found == direct


def test_the_age_of_a_scrape_is_added_to_what_it_says():
    scrapes = Scrapes()
    scrapes.scrape(1000.0, answer(KNOWN, stores=True))
    found = read(scrapes, now=1012.0)
    assert found is not None
    assert found.store is not None
    assert (found.scrape_age_seconds, found.store.age_seconds) == (15.0, 14.0)
    assert found.numbers["running"].age_seconds == 15.0


def test_of_the_latest_scrape_what_it_lacks_is_missing():
    scrapes = Scrapes()
    scrapes.scrape(1000.0, answer(KNOWN, stores=True))
    scrapes.scrape(1015.0, answer(replace(KNOWN, sample=None), stores=True))
    found = read(scrapes, now=1015.0)
    assert found is not None
    assert (dict(found.numbers), dict(found.latencies)) == ({}, {})
    assert found.start_id == "e1"


def test_a_scrape_between_two_queries_is_left_for_the_next_look():
    scrapes = Scrapes()
    scrapes.scrape(1000.0, answer(KNOWN))
    before = scrapes.series
    scrapes.scrape(1015.0, answer(replace(KNOWN, start=StartId("e2", Source.SOCKET))))
    answers = [scrapes.series, before, scrapes.series, scrapes.series]
    found = facts_of(answers, namespace="ns", pods=HERE, now=1016.0)[POD]
    assert found is not None
    assert (found.start_id, found.numbers["running"].age_seconds) == ("e1", 3.0 + 16.0)


def test_a_pod_that_had_the_name_before_and_one_elsewhere_do_not_count():
    here, gone = Scrapes(), Scrapes({**LABELS, "instance": "10.0.0.2:9095"})
    elsewhere = Scrapes({**LABELS, "namespace": "other"})
    here.scrape(1000.0, answer(KNOWN))
    late = replace(KNOWN, start=StartId("late", Source.SOCKET))
    gone.scrape(1010.0, answer(late) | {"podUid": "earlier"})
    elsewhere.scrape(1010.0, answer(late))
    series = [*elsewhere.series, *gone.series, *here.series]
    found = facts_of([series] * 4, namespace="ns", pods=HERE, now=1010.0)[POD]
    assert found is not None
    assert found.start_id == "e1"
    nobody = facts_of([series] * 4, namespace="ns", pods={POD: "third"}, now=1010.0)
    assert nobody == {POD: None}


def test_a_scrape_of_the_future_is_none():
    scrapes = Scrapes()
    scrapes.scrape(1000.0, answer(KNOWN))
    assert read(scrapes, now=996.0) is not None
    assert read(scrapes, now=900.0) is None


@pytest.mark.parametrize("value", [-1.0, 2.0**64, 1e300])
def test_numbers_that_cannot_be_true_are_missing(value: float):
    scrapes = Scrapes()
    scrapes.scrape(1000.0, answer(KNOWN, stores=True))
    names = {"kvserving_agent_engine_number", "kvserving_agent_control_counter"}
    odd = [
        replace(each, points=((1000.0, value),)) if each.labels["__name__"] in names else each
        for each in scrapes.series
    ]
    found = facts_of([odd] * 4, namespace="ns", pods=HERE, now=1000.0)[POD]
    assert found is not None
    assert found.store is not None
    assert (dict(found.numbers), dict(found.store.counters)) == ({}, {})


@pytest.mark.parametrize("value", [-3.0, 2.5, 1e300])
def test_a_histogram_with_one_wrong_bucket_is_none(value: float):
    scrapes = Scrapes()
    scrapes.scrape(1000.0, answer(KNOWN))

    def bent(each: Series) -> Series:
        wrong = each.labels.get("le") == "0.5"
        return replace(each, points=((1000.0, value),)) if wrong else each

    odd = [bent(each) for each in scrapes.series]
    found = facts_of([odd] * 4, namespace="ns", pods=HERE, now=1000.0)[POD]
    assert found is not None
    assert "request" not in found.latencies
    assert "interToken" in found.latencies


class Engine:
    """A store's rings, read by an agent every `batch` rows and scraped every other time."""

    def __init__(self, seed: int, mix: str, batch: int) -> None:
        self.workload = Workload(seed=seed, mix=mix)
        self._batch = batch
        self._now = 1000.0
        self._sums = Sums()
        self._scrapes = Scrapes()
        self.loads: list[list[float | None]] = []
        self.steps: list[list[float]] = []

    def go(self, rows: int) -> None:
        for _ in range(0, rows, self._batch):
            self.loads += [
                [getattr(load, name) for name in _LOAD] for load in self.workload.loads(self._batch)
            ]
            self.steps += [
                [step.serial, step.tokens, step.seconds]
                for step in self.workload.steps(self._batch)
            ]
            state = replace(
                STORE,
                recent=states.rings(
                    {
                        "loads": {"fields": list(LOAD_FIELDS), "rows": self.loads[-64:]},
                        "steps": {"fields": list(STEP_FIELDS), "rows": self.steps[-64:]},
                    }
                ),
            )
            self._sums = fold(self._sums, state)
            self._now += 10.0
            self._scrapes.scrape(self._now, answer(Snapshot(store=state), stores=True), self._sums)

    def recent(self) -> Recent:
        found = read(self._scrapes, now=self._now)
        assert found is not None
        assert found.store is not None
        assert found.store.recent is not None
        return found.store.recent


_LOAD = (
    "serial", "tokens", "bytes_read", "probe_seconds", "fetch_seconds", "served_seconds",
    "notice_seconds", "step_seconds", "step_tokens", "step_loads",
)  # fmt: skip


def close(seed: int, mix: str, batch: int) -> bool:
    engine = Engine(seed, mix, batch)
    engine.go(205)
    records = EngineRecords(start_id="s1", recent=engine.recent())
    known = estimate(observe(Fit(revision="r"), [records], revision="r", now=0.0), now=0.0)
    truth = engine.workload.truth
    wanted = (
        (known.bandwidth, truth.bandwidth, 0.05),
        (known.tokens_per_second, truth.rate, 0.05),
        (known.engine_fixed_seconds, truth.engine_fixed, 0.10),
        (known.request_fixed_seconds, truth.request_fixed, 0.10),
    )
    return all(n is not None and abs(n.value / t - 1) <= within for n, t, within in wanted)


def share(seeds: int, right: Callable[[int], bool]) -> float:
    return sum(right(seed) for seed in range(seeds)) / seeds


def test_means_of_scrapes_give_the_fit_what_records_do():
    assert share(10, lambda seed: close(seed, PAPER_MIX, 10)) >= 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize(("batch", "least"), [(2, 0.88), (10, 0.95)])
def test_means_of_scrapes_in_100_seeds(mix: str, batch: int, least: float):
    assert share(100, lambda seed: close(seed, mix, batch)) >= least


def test_records_are_none_of_two_lives_and_none_twice():
    engine = Engine(1, PAPER_MIX, 10)
    engine.go(40)
    first = engine.recent()
    assert [load.serial for load in first.loads] == [19, 29, 39]
    engine.go(10)
    serials = [load.serial for load in engine.recent().loads]
    assert serials == [19, 29, 39, 49], "a serial number names the same mean load in every look"


def test_ends_of_an_agent_are_counted_by_all_their_reasons_and_make_no_other_target() -> None:
    scrapes = Scrapes()
    scrapes.scrape(990.0, answer(KNOWN))
    name = "kvserving_agent_restarts_total"
    ends = [
        Series({"__name__": name, "reason": reason, **LABELS}, ((990.0, count),))
        for reason, count in (("SIGKILL", 2.0), ("Exit 1", 1.0))
    ]
    answers = [[*each, *ends] for each in scrapes.answers]
    found = facts_of(answers, namespace="ns", pods=HERE, now=1000.0)[POD]
    assert found is not None
    assert (found.lives, found.start_id, found.hung) == (4, "e1", True)
