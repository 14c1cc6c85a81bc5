"""A model behind HTTP: forms, failures, limits, budgets, answers that are kept, and what is said meanwhile."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import neurecover as nr
from benchmarks.resources.served import serve
from neurecover.data.options import CallOptions
from neurecover.data.oracles.calls import BusyError, Calls
from neurecover.data.oracles.endpoint import _retry_after
from neurecover.exceptions import OutOfTimeError, RefusedError
from neurecover.solve import time_limit

TRUTH = nr.simulate.teacher(6, 4, random_state=3)


def doubled(X: np.ndarray) -> np.ndarray:
    """A model without rounding, so that the size of a call does not matter."""
    return 2.0 * X[:, :2]


@pytest.fixture(autouse=True)
def _no_proxy_and_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("neurecover.data.oracles.calls.OPTIONS", CallOptions(pause=0.01))


@pytest.mark.parametrize("form", ["inputs", "instances"])
def test_the_usual_forms_give_the_model_to_the_last_digit(form: str) -> None:
    X = np.random.default_rng(0).standard_normal((250, 6)) * 10.0 ** np.arange(-3.0, 3.0)
    with serve(doubled, form=(form, {"inputs": "outputs", "instances": "predictions"}[form])) as served:
        oracle = nr.endpoint(served.url, 6, form=form, batch=60)
        np.testing.assert_array_equal(oracle.ask(X), doubled(X))
        assert served.calls == 1 + 5
        assert oracle.queries == 252
        assert all("neurecover/" in headers["User-Agent"] for headers in served.headers)


def test_two_functions_stand_for_any_other_form() -> None:
    def one_row(X: np.ndarray) -> dict[str, list[list[float]]]:
        return {"features": X.tolist()}

    with serve(doubled, form=("features", "score")) as served:
        oracle = nr.endpoint(served.url, 6, request=one_row, response=lambda answer: answer["score"], batch=1)
        np.testing.assert_array_equal(oracle.ask(np.eye(6)), doubled(np.eye(6)))
        with pytest.raises(RefusedError, match=r"not where they were expected \(no 'y'\)\. Name the fields"):
            nr.endpoint(served.url, 6, request=one_row, response=lambda answer: answer["y"])
        with pytest.raises(RefusedError, match="no field 'outputs' but the fields score"):
            nr.endpoint(served.url, 6, request=one_row)


def test_names_of_two_fields_stand_for_a_form_and_a_call_may_take_one_row() -> None:
    def summed(X: np.ndarray) -> np.ndarray:
        return X.sum(axis=-1)

    with serve(doubled, form=("features", "score")) as served:
        oracle = nr.endpoint(served.url, 6, form="features, score")
        np.testing.assert_array_equal(oracle.ask(np.eye(6)), doubled(np.eye(6)))
    with serve(summed, form=("features", "score")) as served:  # a row in, a number out
        oracle = nr.endpoint(served.url, 6, form="features,score", one_row=True)
        np.testing.assert_array_equal(oracle.ask(np.eye(6)), np.ones((6, 1)))
    with (
        serve(doubled, status=422) as served,
        pytest.raises(ValueError, match=r"status 422.*as in form='inputs,outputs'"),
    ):
        nr.endpoint(served.url, 6)


def test_headers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_TOKEN", "abc123")
    with serve(TRUTH) as served:
        nr.endpoint(served.url, 6, headers={"Authorization": "Bearer ${MODEL_TOKEN}"})
        assert served.headers[-1]["Authorization"] == "Bearer abc123"
        with pytest.raises(ValueError, match=r"\$\{NO_SUCH_NAME\} from the environment"):
            nr.endpoint(served.url, 6, headers={"Authorization": "${NO_SUCH_NAME}"})


@pytest.mark.parametrize(
    ("status", "sentence"), [(403, "other credentials"), (404, "status 404"), (302, "Give that URL")]
)
def test_what_will_not_pass_is_not_repeated(status: int, sentence: str) -> None:
    with serve(TRUTH, status=status) as served:
        with pytest.raises(ValueError, match=sentence):
            nr.endpoint(served.url, 6)
        assert served.calls == 1


def test_bad_arguments() -> None:
    for arguments, sentence in (
        ({"url": "localhost:80"}, "begins with http"),
        ({"form": "rows"}, "form is one of"),
        ({"timeout": 0.0}, "timeout needs"),
        ({"batch": 0}, "batch needs"),
        ({"in_flight": 0}, "in_flight needs"),
        ({"queries_per_second": 0.0}, "queries_per_second needs"),
        ({"max_queries": 0}, "max_queries needs"),
        ({"max_seconds": -1.0}, "max_seconds needs"),
    ):
        with pytest.raises(ValueError, match=sentence):
            nr.endpoint(**({"url": "http://127.0.0.1:9/", "n_inputs": 6} | arguments))  # type: ignore[arg-type]


def test_the_same_network_through_failures_and_a_limit_as_from_memory() -> None:
    whole = nr.extract(nr.oracle(TRUTH, 6, random_state=0), random_state=0)
    with serve(TRUTH, latency=0.01, failing=50, per_second=200) as served:
        found = nr.extract(nr.endpoint(served.url, 6, batch=5, random_state=0), random_state=0)
        assert found.certificate.verdict == "exact"
        assert found.network.n_hidden == 4
        # Batches of another size may be summed in another order.
        np.testing.assert_allclose(found.network.W, whole.network.W, atol=1e-10)


def test_a_limit_is_obeyed_by_all_calls_in_flight() -> None:
    X = np.random.default_rng(0).standard_normal((60, 6))
    with serve(doubled, per_second=20, retry_after="1") as served:
        oracle = nr.endpoint(served.url, 6, batch=1, in_flight=3)
        np.testing.assert_array_equal(oracle.ask(X), doubled(X))
        assert served.limited > 0
        # Calls that were under way when the pause was asked for may still arrive; no others do.
        assert served.early <= 2 * served.limited


def test_a_rate_is_kept() -> None:
    with serve(TRUTH) as served:
        oracle = nr.endpoint(served.url, 6, batch=5, queries_per_second=100)
        began = time.monotonic()
        oracle.ask(np.random.default_rng(0).standard_normal((60, 6)))
        # Eleven waits of 5/100 s between twelve calls.
        assert time.monotonic() - began > 0.54
        assert served.limited == 0


def test_retry_after_is_a_number_or_a_date() -> None:
    assert _retry_after("2.5") == 2.5
    assert _retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert _retry_after("Wed, 21 Oct 2065 07:28:00 GMT") > 1e8
    assert _retry_after("soon") == _retry_after(None) == 0.0

    def later(X: np.ndarray) -> np.ndarray:
        raise BusyError("closed.", after=7200.0)

    with pytest.raises(OSError, match="asks to wait 7200 s"):
        Calls(later)(np.ones((1, 2)))


def test_no_more_queries_than_allowed() -> None:
    with serve(TRUTH) as served:
        oracle = nr.endpoint(served.url, 6, max_queries=100, random_state=0)
        found = nr.extract(oracle, random_state=0)
        assert found.certificate.verdict == "failed"
        assert "queries is used up" in found.certificate.reasons[0]
        assert len(served.rows) <= 100
        with pytest.raises(RefusedError, match="limit of 100 queries"):
            oracle.ask(np.ones((101, 6)))


def test_a_slow_server_and_a_time_budget() -> None:
    with serve(TRUTH, latency=0.1) as served:
        began = time.monotonic()
        found = nr.extract(nr.endpoint(served.url, 6, batch=1, in_flight=2, max_seconds=1.5), random_state=0)
        assert time.monotonic() - began < 1.5 + 10.0
        assert found.certificate.verdict == "failed"
        assert any("Time ended the search" in reason for reason in found.certificate.reasons)


def test_a_call_that_hangs_ends_with_the_time() -> None:
    with serve(TRUTH) as served:
        oracle = nr.endpoint(served.url, 6, timeout=30.0)
        served.latency = 5.0
        began = time.monotonic()
        with time_limit(time.monotonic() + 0.2), pytest.raises(OutOfTimeError):
            oracle.ask(np.ones((1, 6)))
        assert time.monotonic() - began < 4.0


def test_a_server_that_goes_away_leaves_the_answers_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    keep = tmp_path / "answers.bin"
    with serve(TRUTH) as first:
        oracle = nr.endpoint(first.url, 6, batch=10, retries=1, keep=keep, random_state=0)

        def stop(stage: str, figure: float) -> None:
            if len(first.rows) > 120:
                first.status = 500

        with pytest.raises(OSError, match="status 500") as gone:
            nr.extract(oracle, progress=stop)
        assert f"{len(first.rows)} answers are kept in {keep}" in gone.value.__notes__[0]
    with serve(TRUTH) as second:
        found = nr.extract(nr.endpoint(second.url, 6, batch=10, keep=keep, random_state=0))
        assert found.certificate.verdict == "exact"
        assert not set(first.rows) & set(second.rows)
        assert len(set(second.rows)) == len(second.rows)


def test_an_error_in_one_call_keeps_the_answers_of_the_others(tmp_path: Path) -> None:
    ready = threading.Barrier(3)

    def model(X: np.ndarray) -> np.ndarray:
        if X[0, 0] < 3:
            ready.wait(5.0)
        if X[0, 0] == 1:
            raise KeyboardInterrupt
        time.sleep(0.1)
        return X

    kept: list[float] = []
    calls = Calls(model, batch=1, in_flight=3)
    with pytest.raises(KeyboardInterrupt):
        calls(np.arange(20.0)[:, None], lambda X, Y: kept.append(X[0, 0]))
    assert {0.0, 2.0} <= set(kept)
    assert len(kept) < 19


def test_progress_comes_within_a_second_with_queries_rate_and_forecast() -> None:
    said: list[tuple[float, str]] = []
    with serve(TRUTH, latency=0.05) as served:
        oracle = nr.endpoint(served.url, 6, batch=100)
        began = time.monotonic()
        nr.extract(oracle, random_state=0, progress=lambda stage, _: said.append((time.monotonic() - began, stage)))
    moments = np.array([0.0, *(moment for moment, _ in said)])
    assert np.diff(moments).max() < 2.0  # calls of 0.05 s on a busy machine
    assert moments[1] < 1.0
    assert any("queries" in stage and "/s" in stage and "more" in stage for _, stage in said)


def test_time_is_kept_for_a_model_in_memory_that_is_slow_by_the_row() -> None:
    def slow(X: np.ndarray) -> np.ndarray:
        time.sleep(0.01 * len(X))
        return TRUTH(X)

    began = time.monotonic()
    found = nr.extract(nr.oracle(slow, 6), random_state=0, time_budget=1.0)
    assert time.monotonic() - began < 1.0 + 8.0
    assert found.certificate.verdict == "failed"


def test_a_network_found_at_the_end_of_the_budget_is_still_certified() -> None:
    needed = nr.extract(nr.oracle(TRUTH, 6, random_state=0), random_state=0).n_queries
    assert needed is not None
    budget = needed + 424  # what a certificate may take at the most is kept back
    found = nr.extract(nr.oracle(TRUTH, 6, random_state=0), random_state=0, query_budget=budget)
    assert found.certificate.verdict == "exact"


@pytest.mark.slow
def test_on_the_command_line_ctrl_c_says_how_to_go_on_and_the_rest_is_asked_later(tmp_path: Path) -> None:
    keep, out = tmp_path / "answers.bin", tmp_path / "net.npz"
    with serve(TRUTH, stop_after=30) as served:
        words = [sys.executable, "-m", "neurecover", "extract", "--url", served.url, "--inputs", "6", "--batch", "5"]
        words += ["--keep", str(keep), "--out", str(out), "--header", "X-Test: ${HOME}"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=os.environ)
        written, unchanged = 0, 0
        while unchanged < 20 and process.poll() is None:  # until no answer is on its way any more
            time.sleep(0.05)
            size = keep.stat().st_size if len(served.rows) >= 30 else 0
            unchanged = unchanged + 1 if 0 < size == written else 0
            written = size
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=25)  # a call that is not answered would take 30 s to time out
        # Interrupted within an import, Python ends itself by the signal once it has said all.
        assert process.returncode in (130, -signal.SIGINT), said
        assert f"answers are kept in {keep}: run the same again to continue" in " ".join(said.split())
        asked = set(served.rows)
        served.stop_after = None
        done = subprocess.run(words, capture_output=True, text=True, env=os.environ, check=False)
        assert done.returncode == 0, done.stderr
        assert len(set(served.rows)) == len(served.rows) > len(asked)
    assert nr.compare(nr.load(out), TRUTH).weight_error < 1e-9
