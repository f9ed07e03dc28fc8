"""Traffic through groups: what must hold of any simulation, against what queueing theory and `decide` say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from router.cluster import scenario, scenario_files, simulate, traffic
from router.cluster.scenario import Objective, Routing
from router.cluster.simulate import Judge, Pool, Rates, Recorded, Workload
from router.cluster.traffic import Arrivals
from router.cluster.values import Impossible
from router.config import Band, Policy, Route, ScoreRule
from router.decide import decide
from router.types import Decision, Load, Score, Signals

ONE = Rates(stream=(100.0, 100.0), prefill=1000.0)
TWO = Rates(stream=(100.0, 100.0, 60.0), prefill=1000.0)
REFERENCE = scenario_files.scenario("reference")


def recorded(n: int = 1, prompt: float = 1000.0, output: float = 101.0) -> Recorded:
    scores = np.linspace(0.0, 1.0, n)
    return Recorded(
        scores=scores,
        prompt=np.full(n, prompt),
        asked=np.full(n, prompt),
        output={"small": np.full(n, output), "large": np.full(n, output)},
        quality={"small": 1.0 - scores, "large": np.ones(n)},
    )


def work(times: list[float], rows: list[int] | None = None) -> Workload:
    n = len(times)
    held = rows if rows is not None else [0] * n
    return Workload(times=np.array(times), rows=np.array(held, dtype=np.int64), draws=np.linspace(0, 0.999, n))


def cut(at: float) -> Policy:
    bands = (Band(group="small", below=at), Band(group="large"))
    route = Route(name="difficulty", score=ScoreRule(scorer="difficulty", bands=bands))
    return Policy(name="p", models=("auto",), default="large", routes=(route,))


def through(of: Workload, rates: Rates, copies: int = 1, held: Recorded | None = None) -> simulate.Served:
    pools = [Pool(name="large", copies=copies, rates=rates)]
    return simulate.serve(of, held or recorded(), simulate.everything(of, large=True), pools)


# --- one copy --------------------------------------------------------------------------------------------


def test_a_request_alone_waits_for_its_prompt_and_then_for_each_token():
    served = through(work([5.0]), ONE)
    assert served.ttft[0] == pytest.approx(1.0)
    assert served.tpot[0] == pytest.approx(0.01)
    assert served.done[0] == pytest.approx(5.0 + 1.0 + 1.0)
    assert served.busy_s["large"] == pytest.approx(2.0)


def test_a_copy_with_one_slot_serves_in_order():
    served = through(work([0.0, 0.0, 0.0]), ONE)
    assert served.ttft.tolist() == pytest.approx([1.0, 3.0, 5.0])
    assert served.done.tolist() == pytest.approx([2.0, 4.0, 6.0])


def test_two_streams_share_a_copy_and_a_prompt_slows_the_stream_beside_it():
    served = through(work([0.0, 0.0]), TWO)
    # From 1 s on the second prompt and the first stream each have half: 1000 tokens at 500/s, 50 tokens/s.
    assert served.ttft.tolist() == pytest.approx([1.0, 3.0])
    # The first stream had all 100 tokens by 3 s; the second then decodes alone.
    assert served.done.tolist() == pytest.approx([3.0, 4.0])


def test_a_second_copy_takes_what_the_first_is_too_busy_for():
    served = through(work([0.0, 0.1]), ONE, copies=2)
    assert served.ttft.tolist() == pytest.approx([1.0, 1.0])


def test_an_answer_of_one_token_ends_with_its_first():
    served = through(work([0.0]), ONE, held=recorded(output=1.0))
    assert served.done[0] == served.ttft[0] == pytest.approx(1.0)
    assert served.tpot[0] == 0.0


def test_waiting_is_what_queueing_theory_says_of_one_server():
    # M/D/1 at 70 %: the mean wait is rho / (2 mu (1 - rho)), service being 2 s.
    rho, service = 0.7, 2.0
    of = traffic.drawn(Arrivals(per_s=rho / service), 60_000, 1, seed=3)
    served = through(of, ONE)
    assert float(served.ttft.mean()) - 1.0 == pytest.approx(rho * service / (2 * (1 - rho)), rel=0.06)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0, 50), min_size=1, max_size=60).map(sorted),
    st.integers(1, 3),
    st.sampled_from([ONE, TWO, Rates(stream=(90.0, 90.0, 80.0, 70.0, 60.0), prefill=300.0)]),
)
def test_every_request_ends_after_it_began_and_nothing_is_faster_than_alone(
    times: list[float], copies: int, rates: Rates
):
    served = through(work(times), rates, copies)
    assert (served.ttft >= 1000.0 / rates.prefill - 1e-6).all()
    assert (served.tpot >= 1 / rates.stream[1] - 1e-9).all()
    assert (served.done >= np.array(times) + served.ttft - 1e-9).all()
    assert served.busy_s["large"] <= copies * float(served.done.max()) + 1e-6


# --- where requests go -----------------------------------------------------------------------------------


@given(st.floats(0, 1))
def test_each_request_goes_where_production_decides(at: float):
    held, policy = recorded(21), cut(at)
    of = work([float(i) for i in range(21)], list(range(21)))
    sent = simulate.routed(of, held, policy, None)
    for row, group in enumerate(sent.groups.tolist()):
        given_ = {"difficulty": Score(scorer="difficulty", value=float(held.scores[row]))}
        made = decide(policy, Signals(input_tokens=1000), given_, None, Load())
        assert isinstance(made, Decision)
        assert ("small", "large")[group] == made.group


def test_a_classifier_delays_each_request_and_one_that_is_too_late_abstains_to_the_default():
    judge = Judge(copies=1, prefill=10_000.0, overhead_s=0.02, deadline_s=0.25)
    of = work([0.0, 0.0, 0.0, 10.0], [0, 0, 0, 0])
    sent = simulate.routed(of, recorded(), cut(0.5), judge)
    assert (sent.times - of.times).tolist() == pytest.approx([0.12, 0.24, 0.25, 0.12])
    assert sent.groups.tolist() == [0, 0, 1, 0]
    assert sent.abstained == 1


def test_a_classifier_reads_no_more_of_a_prompt_than_it_is_told_to():
    judge = Judge(copies=1, prefill=10_000.0, overhead_s=0.02, deadline_s=5.0, reads=500)
    sent = simulate.routed(work([0.0]), recorded(prompt=20_000.0), cut(0.5), judge)
    assert sent.times[0] == pytest.approx(0.07)


def test_a_score_that_is_missing_leads_to_the_default():
    held = replace(recorded(), scores=np.array([math.nan]))
    sent = simulate.routed(work([0.0]), held, cut(0.5), None)
    assert (sent.groups.tolist(), sent.abstained) == ([1], 1)


# --- arrivals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", ["poisson", "bursty"])
def test_requests_come_at_the_mean_rate_that_is_asked_for(process: str):
    arrivals = Arrivals(process=process, per_s=5.0, mean_s=20.0)  # type: ignore[arg-type]
    of = traffic.drawn(arrivals, 100_000, 10, seed=2)
    assert len(of) / of.times[-1] == pytest.approx(5.0, rel=0.05)
    assert (np.diff(of.times) >= 0).all()


def test_bursts_are_bursts():
    counts = []
    for process in ("poisson", "bursty"):
        of = traffic.drawn(Arrivals(process=process, per_s=5.0), 50_000, 10, seed=2)  # type: ignore[arg-type]
        each = np.bincount((of.times / 10).astype(np.int64))
        counts.append(each.var() / each.mean())
    assert counts[0] == pytest.approx(1.0, abs=0.1)
    assert counts[1] > 5


def test_recorded_arrivals_keep_their_gaps_and_take_the_rate():
    of = traffic.drawn(Arrivals(process="records", per_s=2.0), 6, 1, seed=1, recorded=[100.0, 101.0, 104.0])
    assert of.times[-1] == pytest.approx(3.0)
    assert np.diff(of.times)[:2] / of.times[0] == pytest.approx([3.0, 1.0])


@pytest.mark.parametrize(
    ("arrivals", "said"),
    [
        (Arrivals(per_s=0.0), "give a rate above zero"),
        (Arrivals(process="bursty", factor=9.0, share=0.2), "a factor of 1 to 5"),
        (Arrivals(process="records"), "fewer than two different times"),
    ],
)
def test_arrivals_that_cannot_be_say_what_would_do(arrivals: Arrivals, said: str):
    with pytest.raises(Impossible, match=said):
        traffic.drawn(arrivals, 10, 1, seed=1)


# --- a whole scenario ------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_outcome_and_another_one_another():
    once, again, other = (scenario.run(REFERENCE, seed, requests=1500) for seed in (1, 1, 2))
    assert once == again
    assert once.arms["routed"].quality != other.arms["routed"].quality


def test_each_arm_keeps_to_what_it_is():
    found = scenario.run(REFERENCE, 1, requests=4000)
    arms = found.arms
    assert (arms["large_only"].large_share, arms["small_only"].large_share) == (1.0, 0.0)
    assert arms["random"].large_share == pytest.approx(arms["routed"].large_share, abs=0.03)
    assert arms["routed"].large_share == pytest.approx(0.4, abs=0.03)
    assert arms["small_only"].quality < arms["random"].quality < arms["routed"].quality < arms["large_only"].quality
    for arm in arms.values():
        assert arm.quality_ci[0] < arm.quality < arm.quality_ci[1]
    value, low, high = found.differences["random"]
    assert 0 < low < value < high


def test_a_score_that_knows_which_prompts_need_the_large_model_keeps_its_quality():
    held = REFERENCE.recorded
    gain = held.quality["large"] - held.quality["small"]
    knowing = replace(REFERENCE, recorded=replace(held, scores=(gain + 1) / 2), routing=Routing(threshold=0.6))
    arms = scenario.run(knowing, 1, requests=4000).arms
    assert arms["routed"].quality >= arms["large_only"].quality


def test_the_load_that_is_said_to_be_borne_is_borne_and_a_quarter_more_is_not():
    made = scenario.ready(REFERENCE)
    borne = scenario.bearable(REFERENCE, made, "small_only", 1)
    for factor, well in ((0.97, True), (1.25, False)):
        arm = scenario.run(REFERENCE, 1, per_s=borne * factor, requests=12_000).arms["small_only"]
        assert (arm.within >= scenario.KEPT) == well


def test_an_objective_that_nothing_keeps_means_no_load_is_borne():
    strict = replace(REFERENCE, objective=Objective(ttft_s=0.001, tpot_s=0.1))
    assert scenario.bearable(strict, scenario.ready(strict), "large_only", 1) == 0.0


def test_slow_rates_bear_less_than_fast_ones():
    slow, fast = (scenario.ready(REFERENCE, which).pools["routed"][0].rates for which in ("low", "high"))
    assert slow.prefill < fast.prefill
    assert all(a < b for a, b in zip(slow.stream, fast.stream, strict=True))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layouts": {"routed": "large-2xtp3+small-2xtp1+classifier-1xtp1"}}, "no layout 'large-2xtp3.*did you mean"),
        ({"routing": Routing(large_share=1.5)}, "large_share in 0..1"),
        ({"models": {"small": REFERENCE.models["small"]}}, "names no large model"),
    ],
)
def test_a_scenario_that_cannot_be_says_what_is_wrong(change: dict[str, object], said: str):
    with pytest.raises(Impossible, match=said):
        scenario.run(replace(REFERENCE, **change), 1, requests=10)  # type: ignore[arg-type]
