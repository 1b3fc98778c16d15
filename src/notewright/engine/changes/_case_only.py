"""Moves that change nothing but the spelling of a name: on a store that ignores case both names are one file. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from notewright.ledger.base import Step
from notewright.notes.path import NotePath, path_key
from notewright.stores.base import Stored, version_of


def twins_of(steps: tuple[Step, ...]) -> dict[NotePath, NotePath]:
    """Each path of a change set that has another one in another spelling, with that one."""
    if len(steps) < 2:
        return {}
    spelled: defaultdict[str, list[NotePath]] = defaultdict(list)
    for step in steps:
        spelled[path_key(step.path)].append(step.path)
    pairs = [pair for pair in spelled.values() if len(pair) == 2]
    return {path: other for one, two in pairs for path, other in ((one, two), (two, one))}


def half_moved(
    steps: tuple[Step, ...], twins: Mapping[NotePath, NotePath], sights: Mapping[NotePath, Stored | None]
) -> Iterator[tuple[NotePath, NotePath, Stored]]:
    """Old and new name of files that seem to have their new spelling and still the old bytes."""
    before = {step.path: step.before for step in steps if step.after is None}
    for step in steps:
        old, now = twins.get(step.path), sights.get(step.path)
        if old is None or now is None or step.before is not None or sights.get(old) is not None:
            continue
        if step.after != before.get(old) == version_of(now.data):
            yield old, step.path, now
