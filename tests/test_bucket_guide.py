"""`docs/guides/buckets.md` is true: its policy is enough and no more, its keys work, and a call costs what it says."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from tests.bucket import BUCKET, GUIDE_KEY, GUIDE_SECRET, Bucket
from tests.conftest import ROOT

from notewright.app.opening import close_workspace, open_workspace
from notewright.config.load import Config, WorkspaceConfig
from notewright.engine.library import Library
from notewright.engine.workspace import Workspace
from notewright.ledger.base import Actor
from notewright.surfaces.base import Call, Session
from notewright.surfaces.notes.tools import SURFACE
from notewright.surfaces.perform import perform

pytestmark = pytest.mark.slow

GUIDE = (ROOT / "docs/guides/buckets.md").read_text()
ACTIONS = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "DELETE": "s3:DeleteObject"}
PRICES = {"AWS": (5.0, 0.4), "R2": (4.5, 0.36)}  # of a million: PUT or LIST, GET or HEAD
LINKS = 10


@pytest.fixture
def asked(bucket: Bucket) -> Iterator[list[tuple[str, str]]]:
    """What was asked of the service: the kind and the target of each request."""
    heard: list[tuple[str, str]] = []
    bucket.proxy.hears = lambda kind, target: heard.append((kind, target))
    yield heard


@pytest.fixture
def ws(bucket: Bucket, asked: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", GUIDE_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", GUIDE_SECRET)
    bucket.put("Target.md", b"# Target\n")
    for number in range(LINKS):
        bucket.put(f"f/{number}.md", b"see [[Target]]\n")
    one = WorkspaceConfig("Work", "work", bucket.location, endpoint=bucket.proxy.endpoint, poll_seconds=3600)
    made = open_workspace(one, Config((one,), str(tmp_path / "state"), str(tmp_path / "cache")))
    made.follower.wait(20)
    yield made
    close_workspace(made)


def told(ws: Workspace, tool: str, **args: Any) -> str:
    answer = perform(SURFACE, Call(Library.of([ws]), Actor("ann", "desk", "notes", tool), Session()), tool, args)
    assert not answer.is_error, answer.text
    return answer.text


CALLS: dict[str, tuple[str, dict[str, Any]]] = {  # rows of the table
    "read": ("read", {"path": "Target"}),
    "edit": ("edit", {"path": "f/3.md", "edits": [{"append": "more"}]}),
    "a new note": ("write", {"path": "g/New.md", "content": "new"}),
    "delete": ("delete", {"path": "g/New.md"}),
    "rename with 10 links": ("move", {"from": "Target", "to": "Other"}),
}


def test_the_policy_to_paste_allows_every_request_and_nothing_that_is_not_needed(
    bucket: Bucket, ws: Workspace, asked: list[tuple[str, str]]
) -> None:
    for tool, args in CALLS.values():
        said = told(ws, tool, **args)
    told(ws, "undo", change=re.findall(r'change="(\w+)"', said)[0])
    assert list(ws.store.entries()) and ws.store.children("f")
    (text,) = re.findall(r'^    \{"Version".*?\]\}$', GUIDE, re.DOTALL | re.MULTILINE)
    policy = json.loads(text.replace("my-notes/work", f"{BUCKET}/{bucket.prefix}").replace("my-notes", BUCKET))
    listing, objects = policy["Statement"]
    allowed = listing["Condition"]["StringLike"]["s3:prefix"].replace("work", bucket.prefix)
    assert (listing["Action"], listing["Resource"]) == ("s3:ListBucket", f"arn:aws:s3:::{BUCKET}")
    used = set()
    for kind, target in asked:
        parts = urlsplit(target)
        if kind == "LIST":
            assert parts.path == f"/{BUCKET}" and fnmatchcase(parse_qs(parts.query)["prefix"][0], allowed), target
        else:
            assert fnmatchcase(f"arn:aws:s3::{unquote(parts.path).replace('/', ':', 1)}", objects["Resource"]), target
            used.add(ACTIONS[kind])
    assert used == set(objects["Action"])


def test_a_call_costs_what_the_guide_says(bucket: Bucket, ws: Workspace) -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", GUIDE, re.MULTILINE))
    for name, (tool, args) in CALLS.items():
        bucket.proxy.reset()
        told(ws, tool, **args)
        requests, aws, r2 = rows[name].split(" | ")
        assert (
            Counter({kind: int(count) for count, kind in re.findall(r"(\d+) ([A-Z]+)", requests)})
            == bucket.proxy.counts
        )
        for (dear, cheap), said in zip(PRICES.values(), (aws, r2), strict=True):
            counts = bucket.proxy.counts
            cost = dear * (counts["PUT"] + counts["LIST"]) + cheap * (counts["GET"] + counts["HEAD"])
            assert said == f"${cost:.2f}", name
    for tool, args in (
        ("search", {"query": "see"}),
        ("grep", {"pattern": "see"}),
        ("list", {}),
        ("links", {"path": "f/3"}),
    ):
        bucket.proxy.reset()
        told(ws, tool, **args)
        assert not bucket.proxy.counts
