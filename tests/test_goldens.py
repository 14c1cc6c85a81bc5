"""Every golden case once more: the same properties as recorded, by the public functions alone."""

import json
from pathlib import Path

import pytest

from goldens import GROUPS
from goldens.outcome import differences, record

FOLDER = Path(__file__).parent / "goldens"
RECORDS = {group: json.loads((FOLDER / f"{group}.json").read_text()) for group in GROUPS}


def test_every_case_has_a_record_and_every_record_a_case() -> None:
    for group, cases in GROUPS.items():
        assert set(cases) == set(RECORDS[group])


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, cases in GROUPS.items() for name in cases])
def test_the_same_properties_as_recorded(group: str, name: str, tmp_path: Path) -> None:
    found = differences(RECORDS[group][name], record(GROUPS[group][name](tmp_path)))
    assert not found, "\n".join(found)
