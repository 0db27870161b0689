"""A judge in a process of its own, to be killed or run in a pid namespace: `python -m ...judge ISOLATION JOB`.

With the job `sleep` it starts three, prints the zygote's folder, its pid and that of its nursery, and waits. With
another it runs that job, then an honest one, and prints how both ended.
"""

import sys
import time

from evaluators.sandbox import Nursery, Zygote
from evaluators.sandbox.client import zygote_environment
from tests.evaluators.sandbox.aftermath import JOBS, TEST_LIMITS


def main(isolation: str, job: str) -> None:
    with (
        Nursery(zygote_environment(interpret=True)) as nursery,
        Zygote(interpret=True, limits=TEST_LIMITS, isolation=isolation, start=nursery.fork) as zygote,  # type: ignore[arg-type]
    ):
        if job == "sleep":
            children = [zygote.spawn(JOBS + job, {}, deadline_s=300) for _ in range(3)]
            for child in children:
                child.receive(20)
            print(zygote.folder, zygote.pid, nursery.pid, flush=True)
            time.sleep(300)
        for name in (job, "echo"):
            with zygote.spawn(JOBS + name, {}, deadline_s=2 if name == "fork_bomb" else 20) as child:
                exit = child.wait()
                print(exit.kind, exit.detail, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
