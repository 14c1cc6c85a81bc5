"""Settings of the whole suite: what a run does depends neither on chance nor on the load of the machine."""

import time

import pytest
from hypothesis import settings

from neurecover.pipeline.progress import Reporter

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

STEP = 1e-3  # seconds, about what a step of a small fit takes


@pytest.fixture
def steps_for_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock stand still but for a millisecond with every step of a fit, so that a time budget counts steps."""
    now, tell = [time.monotonic()], Reporter.pulse

    def pulse(self: Reporter, residual: float) -> None:
        now[0] += STEP
        tell(self, residual)

    monkeypatch.setattr(Reporter, "pulse", pulse)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
