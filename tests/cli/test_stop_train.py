"""`lambdanets train` that is stopped says how to resume it, and can be resumed."""

import os
import signal
import subprocess
import sys
import time

import pytest

LONG = [
    *("model.width=4", "model.h=2", "model.k=4", "data.limit=64", "data.batch_size=8"),
    *("trainer.max_epochs=1000", "trainer.limit_val_batches=2", "checkpoint_seconds=1000"),
]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def test_stops_and_goes_on(tmp_path, number, code):
    runs = tmp_path / "runs"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-m", "lambdanets.cli", "train", "--runs", str(runs)]
    process = subprocess.Popen(
        [*program, "digits", "--name", "stopped", *LONG], env=environment, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not (runs / "stopped" / "metrics.csv").exists():  # it trains
        time.sleep(0.05)
    process.send_signal(number)
    _, told = process.communicate(timeout=120)
    assert process.returncode == code
    assert "Traceback" not in told
    last = told.splitlines()[-1]
    assert last.startswith(f"lambdanets train: stopped by {signal.Signals(number).name}, saved as {runs}/stopped")
    assert "resume with lambdanets train --resume" in last

    rows = (runs / "stopped" / "metrics.csv").read_text().splitlines()
    epochs = len(rows) + 1  # the one it was in, and one more
    ended = subprocess.run(
        [*program, "--resume", "stopped", f"trainer.max_epochs={epochs}"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"{epochs} epochs" in ended.stdout
    assert "resuming from" in ended.stderr
    again = (runs / "stopped" / "metrics.csv").read_text().splitlines()
    assert again[: len(rows)] == rows
    assert len(again) == epochs + 1
