"""Worker processes: started, replaced, stopped, and never left behind."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.listener import GET, answer, connected, heard
from tests.waiting import until

from notewright.server.listen.supervisor import WorkerSlot, is_terminal_gone
from notewright.server.listen.uvicorn_server import BURST_CONNECTIONS, BURST_SECONDS, HOLD_SECONDS, AcceptBackpressure

pytestmark = pytest.mark.slow

TEAM = Path(__file__).with_name("team.py")
ONCE = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


class Team:
    """Two real workers and the process that looks after them."""

    def __init__(self, folder: Path, plan: str = "plain") -> None:
        words = [sys.executable, str(TEAM), plan, str(folder)]
        self.folder = folder
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def noted(self, what: str) -> list[int]:
        place = self.folder / what
        return [int(line) for line in place.read_text().split()] if place.exists() else []

    def started(self, count: int = 2) -> "Team":
        until(lambda: len(self.noted("begun")) >= count, 30)
        return self

    def ask(self, path: str = "/") -> tuple[int, int]:
        """Which worker answered, and its process."""
        with connected(self.port) as client:
            client.sendall(ONCE.replace(b"/ ", path.encode() + b" ", 1))
            told = heard(client)
        number, pid = told.split(b"\r\n\r\n", 1)[1].split(b"\r\n")[1].split()
        return int(number), int(pid)

    def ended(self) -> tuple[int, str, str]:
        said, complained = self.process.communicate(timeout=40)
        return self.process.returncode, said, complained


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path


@contextlib.contextmanager
def team(folder: Path, plan: str = "plain") -> Iterator[Team]:
    made = Team(folder, plan)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()
        for pid in {*made.noted("begun"), *made.noted("tried")}:
            until(lambda pid=pid: not alive(pid), 30)  # type: ignore[misc]


def alive(pid: int) -> bool:
    """Somebody of that number who is not merely waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended between open and read
        return False


def in_background(asked: Team, path: str) -> tuple[threading.Thread, list[tuple[int, int]]]:
    answers: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: answers.append(asked.ask(path)))
    thread.start()
    return thread, answers


def test_both_workers_answer_and_clients_are_spread_over_them(folder: Path) -> None:
    with team(folder) as two:
        two.started()
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(connected(two.port)) for _ in range(20)]
            for client in clients:
                client.sendall(GET)
            who = Counter(answer(client).split(b"\r\n\r\n", 1)[1].split()[1] for client in clients)
        assert len(who) == 2 and min(who.values()) >= 5


def test_a_worker_that_is_killed_is_replaced_and_the_other_goes_on_answering(folder: Path) -> None:
    with team(folder) as two:
        two.started()
        number, pid = two.ask()
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid))
        answers = {two.ask()[1] for _ in range(5)}
        assert pid not in answers
        two.started(3)
        until(lambda: two.ask()[0] == number)
        assert two.process.poll() is None


def test_a_worker_that_is_killed_takes_with_it_only_those_whom_it_serves(folder: Path) -> None:
    """Who would have had to wait is still at the door, and is let in by another: nobody learns of the kill."""
    clients, answers, lost = 30, list[tuple[int, int]](), list[Exception]()

    def ask() -> None:
        try:
            answers.append(two.ask("/in-line"))
        except (OSError, IndexError) as error:  # a connection that ended without an answer
            lost.append(error)

    with team(folder, "line") as two:
        two.started()
        threads = [threading.Thread(target=ask) for _ in range(clients)]
        for thread in threads:
            thread.start()
        until(lambda: len(answers) >= 4, 30)
        os.kill(answers[0][1], signal.SIGKILL)
        for thread in threads:
            thread.join(60)
        assert len(answers) + len(lost) == clients
        assert (
            len(lost) <= 1 + 1 + BURST_CONNECTIONS
        )  # one was being served, one was in line, and some may have been arriving


def test_nobody_is_left_at_the_door_for_long() -> None:
    calls_wait = [True]
    behind = AcceptBackpressure(lambda: calls_wait[0])
    assert behind.holds(1.0) and behind.holds(1.0 + HOLD_SECONDS * 0.9)
    assert not behind.holds(1.0 + HOLD_SECONDS) and not behind.holds(1.0 + 100 * HOLD_SECONDS), (
        "who waits is let in to wait here"
    )
    calls_wait[0] = False
    assert not behind.holds(200.0)
    calls_wait[0] = True
    assert behind.holds(201.0)


def test_of_many_who_come_at_once_some_are_left_to_others() -> None:
    behind = AcceptBackpressure(lambda: False)
    for number in range(BURST_CONNECTIONS):
        assert not behind.holds(5.0 + number / 1e6)
        behind.note_accepted(5.0 + number / 1e6)
    assert behind.holds(5.0 + BURST_SECONDS / 2) and not behind.holds(5.0 + BURST_SECONDS * 1.1)


def test_sigterm_lets_a_request_end_and_lets_nobody_else_in(folder: Path) -> None:
    with team(folder) as two:
        two.started()
        thread, answers = in_background(two, "/slow")
        until(lambda: bool(two.noted("slow")))
        two.process.send_signal(signal.SIGTERM)
        until(lambda: refused(two.port), 5)
        thread.join(20)
        assert answers
        code, said, complained = two.ended()
        assert code == 0 and said == "heavy:\n", complained


def refused(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def test_ctrl_c_at_the_terminal_is_a_stop_like_any_other(folder: Path) -> None:
    with team(folder) as two:
        two.started()
        thread, answers = in_background(two, "/slow")
        until(lambda: bool(two.noted("slow")))
        os.kill(two.process.pid, signal.SIGINT)
        thread.join(20)
        assert answers and two.ended()[0] == 0


def test_workers_are_in_a_group_of_their_own_so_that_ctrl_c_reaches_them_once(folder: Path) -> None:
    with team(folder) as two:
        two.started()
        assert all(os.getpgid(pid) != os.getpgid(two.process.pid) for pid in two.noted("begun"))


def test_a_worker_that_does_not_end_is_ended(folder: Path) -> None:
    with team(folder, "hasty") as two:
        two.started()
        with connected(two.port) as client:
            client.sendall(GET.replace(b"/ ", b"/hang "))
            until(lambda: bool(two.noted("hang")))
            two.process.send_signal(signal.SIGTERM)
            code, _, complained = two.ended()
        assert code == 1 and "did not end in time" in complained


def test_a_second_signal_ends_everything_at_once(folder: Path) -> None:
    with team(folder) as two:
        two.started()
        with connected(two.port) as client:
            client.sendall(GET.replace(b"/ ", b"/hang "))
            until(lambda: bool(two.noted("hang")))
            two.process.send_signal(signal.SIGTERM)
            until(lambda: sum(map(alive, two.noted("begun"))) == 1)
            two.process.send_signal(signal.SIGTERM)
            assert two.ended()[0] == 1


def test_sighup_reaches_every_worker(folder: Path) -> None:
    with team(folder) as two:
        two.started()
        two.process.send_signal(signal.SIGHUP)
        until(lambda: set(two.noted("again")) == set(two.noted("begun")))
        assert two.process.poll() is None and two.ask()


def test_when_the_parent_is_killed_the_workers_end(folder: Path) -> None:
    with team(folder) as two:
        two.started()
        thread, answers = in_background(two, "/slow")
        until(lambda: bool(two.noted("slow")))
        two.process.kill()
        thread.join(20)
        assert answers  # what was begun is finished
        until(lambda: not any(map(alive, two.noted("begun"))), 30)
        assert refused(two.port)


def test_workers_that_all_fail_at_the_start_end_with_words(folder: Path) -> None:
    with team(folder, "broken") as two:
        code, _, complained = two.ended()
        assert code == 1
        assert "the disk is on fire" in complained and "no worker starts" in complained


ALARM = """
import signal, time
from notewright.server.listen.supervisor import Supervisor
print(Supervisor(2, lambda slot: time.sleep(0.05 * slot.number) or 1).run(), signal.getitimer(signal.ITIMER_REAL))
"""


def test_the_wish_to_start_a_worker_again_does_not_end_who_has_nothing_left_to_do() -> None:
    done = subprocess.run([sys.executable, "-c", ALARM], capture_output=True, text=True, timeout=60)
    assert done.stdout == "1 (0.0, 0.0)\n", done.stderr


def test_one_that_cannot_begin_is_tried_again_less_and_less_often_while_the_other_serves(folder: Path) -> None:
    with team(folder, "half") as two:
        two.started(1)
        until(lambda: len(two.noted("tried")) >= 3)
        assert two.ask()[0] == 0 and two.process.poll() is None
        assert len(two.noted("tried")) < 20


def test_who_has_more_clients_than_another_knows_by_how_many() -> None:
    board = memoryview(bytearray(12)).cast("i")
    slots = [WorkerSlot(number, board) for number in range(3)]
    for slot, clients in zip(slots, (5, 2, 9), strict=True):
        slot.set_clients(clients)
    assert [slot.surplus_clients() for slot in slots] == [3, 0, 7]
    slots[1].clear()
    assert [slots[0].surplus_clients(), slots[2].surplus_clients()] == [0, 4]
    assert WorkerSlot().surplus_clients() == 0


def test_a_terminal_that_is_closed_is_told_from_one_that_is_not_there() -> None:
    assert not is_terminal_gone()
    mine, theirs = os.openpty()
    watch = """if True:
        import os
        from notewright.server.listen.supervisor import is_terminal_gone
        print(is_terminal_gone(), flush=True)
        try:
            os.read(0, 1)
        except OSError:
            pass
        print(is_terminal_gone(), flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", watch], stdin=theirs, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        os.close(theirs)
        assert child.stdout.readline() == "False\n"
        os.close(mine)
        assert child.stdout.readline() == "True\n"
