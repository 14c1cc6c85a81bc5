"""Settings of the whole suite: property tests draw the same examples every time, so that a run can be repeated."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
