"""Several workers' answers as one."""

from __future__ import annotations

from typing import Any

from router.admin import many, sums
from router.admin.many import JOINED

WORKER = """\
# HELP pointsman_requests_total Requests answered
# TYPE pointsman_requests_total counter
pointsman_requests_total{group="small",outcome="ok"} 3.0
pointsman_requests_total{group="large",outcome="ok"} 1.0
# HELP pointsman_request_seconds Request to last byte
# TYPE pointsman_request_seconds histogram
pointsman_request_seconds_bucket{group="small",le="1.0"} 2.0
pointsman_request_seconds_bucket{group="small",le="+Inf"} 3.0
pointsman_request_seconds_count{group="small"} 3.0
pointsman_request_seconds_sum{group="small"} 2.5
# HELP pointsman_in_flight Requests at the deployment now
# TYPE pointsman_in_flight gauge
pointsman_in_flight{deployment="a"} 2.0
# HELP pointsman_waiting Requests that wait for a place in the group
# TYPE pointsman_waiting gauge
pointsman_waiting{group="small"} 3.0
# HELP pointsman_deployment_up 1 when requests may go there
# TYPE pointsman_deployment_up gauge
pointsman_deployment_up{deployment="a"} 1.0
# HELP pointsman_kv_usage Share of the KV cache in use
# TYPE pointsman_kv_usage gauge
pointsman_kv_usage{deployment="a"} 0.25
"""
OTHER = (
    WORKER.replace('outcome="ok"} 1.0', 'outcome="timeout"} 5.0')
    .replace('up{deployment="a"} 1.0', 'up{deployment="a"} 0.0')
    .replace("0.25", "0.75")
)


def lines(text: bytes) -> set[str]:
    return {line for line in text.decode().splitlines() if not line.startswith("#")}


def test_counts_are_added_and_gauges_are_what_they_say_of_all():
    assert lines(sums.together([WORKER, OTHER], {})) == {
        'pointsman_requests_total{group="small",outcome="ok"} 6.0',
        'pointsman_requests_total{group="large",outcome="ok"} 1.0',
        'pointsman_requests_total{group="large",outcome="timeout"} 5.0',
        'pointsman_request_seconds_bucket{group="small",le="1.0"} 4.0',
        'pointsman_request_seconds_bucket{group="small",le="+Inf"} 6.0',
        'pointsman_request_seconds_count{group="small"} 6.0',
        'pointsman_request_seconds_sum{group="small"} 5.0',
        'pointsman_in_flight{deployment="a"} 4.0',
        'pointsman_waiting{group="small"} 6.0',
        'pointsman_deployment_up{deployment="a"} 0.0',
        'pointsman_kv_usage{deployment="a"} 0.75',
    }


def test_what_a_dead_worker_counted_stays_and_its_gauges_go():
    gone: dict[sums.Key, float] = {}
    sums.add(gone, sums.counted(OTHER))
    sums.add(gone, sums.counted(WORKER))
    shown = lines(sums.together([WORKER], gone))
    assert 'pointsman_requests_total{group="small",outcome="ok"} 9.0' in shown
    assert 'pointsman_requests_total{group="large",outcome="timeout"} 5.0' in shown
    assert 'pointsman_request_seconds_count{group="small"} 9.0' in shown
    assert 'pointsman_in_flight{deployment="a"} 2.0' in shown
    assert 'pointsman_kv_usage{deployment="a"} 0.25' in shown


def answer(**fields: Any) -> dict[str, Any]:
    shown = {"name": "a", "in_flight": 1, "cooling_s": 0.0, "failures": 0, "last_error": None, "up": True}
    one = shown | {"draining": False} | fields
    held = {"waiting": 2, "places": 3, "deployments": [one]}
    return {"groups": [{"name": "g", **held}, {"name": "h", **held}], "unused": []}


def test_a_deployment_of_two_groups_is_counted_once_for_each_worker():
    joined = many.JOINED["/admin/groups"]([answer(), answer(in_flight=4, up=False, cooling_s=2.5, last_error="500")])
    for group in joined["groups"]:
        assert (group["waiting"], group["places"]) == (4, 6)
        (shown,) = group["deployments"]
        assert (shown["in_flight"], shown["up"], shown["cooling_s"], shown["last_error"]) == (5, False, 2.5, "500")


def test_a_change_counts_as_taken_once_every_worker_has_it():
    def config(generation: int, **fields: Any) -> dict[str, Any]:
        shown = {"generation": generation, "digest": f"d{generation}", "reload_ok": True, "reload_error": None}
        return shown | {"draining": False, "started": 10.0 - generation, "workers": [{"pid": generation}]} | fields

    joined = many.JOINED["/admin/config"]([config(3), config(2, reload_ok=False, reload_error="default.yaml:3:1")])
    assert (joined["generation"], joined["digest"]) == (2, "d2")
    assert (joined["reload_ok"], joined["reload_error"]) == (False, "default.yaml:3:1")
    assert joined["workers"] == [{"pid": 3}, {"pid": 2}]
    assert joined["started"] == 7.0


def test_samples_of_workers_are_told_once_and_what_each_has_drawn_is_added() -> None:
    def answer(samples: int, judged: int, alarms: list[str]) -> dict[str, Any]:
        sampling = {"today": judged, "might": 10 * judged, "judged": judged, "cost": 0.5, "dropped": {"busy": judged}}
        return {
            "samples": samples,
            "policies": [{"policy": "p", "sampling": sampling, "estimates": [{"n": samples}]}],
            "alarms": [{"kind": "quality", "of": of, "since": 1.0} for of in alarms],
            "note": None,
        }

    shown = JOINED["/admin/quality"]([answer(5, 2, ["p"]), answer(7, 3, ["p", "q"])])
    assert (shown["samples"], shown["policies"][0]["estimates"]) == (7, [{"n": 7}])
    assert shown["policies"][0]["sampling"] == {
        "today": 3, "might": 50, "judged": 5, "cost": 1.0, "dropped": {"busy": 5},
    }  # fmt: skip
    assert [one["of"] for one in shown["alarms"]] == ["p", "q"]
