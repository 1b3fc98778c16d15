"""Everyday tasks through `notes`: done, and in few calls and bytes."""

from pathlib import Path

import pytest
from tests.tasks.agent import at_work
from tests.tasks.everyday import TASKS, Task

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task", TASKS, ids=[task.wanted for task in TASKS])
def test_a_task_is_done_in_few_calls_and_bytes(task: Task, tmp_path: Path) -> None:
    with at_work(tmp_path) as agent:
        task.do(agent)
    print(f"{task.wanted}: {agent.calls} of {task.most_calls} calls, {agent.bytes:,} of {task.most_bytes:,} bytes")
    assert agent.calls <= task.most_calls
    assert agent.bytes <= task.most_bytes


def test_there_are_thirty_tasks_or_more() -> None:
    assert len(TASKS) >= 30
