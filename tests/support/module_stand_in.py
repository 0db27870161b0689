"""Stands for `evolve run` of a module where a test is about who runs when and where: `module_stand_in.py MODULE PLACE`.

Notes in `PLACE/../begun.jsonl` when it began and ended and which GPUs it saw, and leaves the summary that lies beside
the module. A module without one says so as `evolve` does; one called `crashes` kills
itself, `surprises` is a fault of evolve, `waits` is interrupted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def main() -> None:
    module, place = Path(sys.argv[1]), Path(sys.argv[2])
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    began = time.monotonic()
    if module.stem == "crashes":
        os.kill(os.getpid(), signal.SIGKILL)
    if module.stem.startswith("waits"):
        (place / "waiting").write_text(str(os.getpid()))
        time.sleep(60)
    if module.stem == "surprises":
        print("Traceback (most recent call last):\n  ...\nKeyError: 'buf7'\nthis is a fault of evolve, not yours")
        sys.exit(70)
    summary = module.with_suffix(".json")
    if not summary.exists():
        print(f"looking at {module.stem}\nerror: {module.stem} has no Model\nhint:  add one")
        sys.exit(2)
    time.sleep(0.4)
    shutil.copy(summary, place / "summary.json")
    gpus = os.environ["CUDA_VISIBLE_DEVICES"]
    entry = {"module": module.stem, "gpus": gpus, "began": began, "ended": time.monotonic()}
    with (place.parent / "begun.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
