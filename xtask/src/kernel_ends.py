"""Ends a cell that is measuring, each time in one of the given ways, and reports whether the worker left.

Arguments: the notebook, the worker (which writes its process number to a file `pid` beside itself
and runs until its input closes), a seed, then the ways: `interrupt`, `restart` and `shutdown` are what
Jupyter does; the name of a signal is sent to the process that runs the cells, after a while that the
seed draws, and the next signal finds the same kernel at work again.
"""

import asyncio
import json
import os
import pathlib
import random
import signal
import sys
import time

from jupyter_client.manager import AsyncKernelManager

NOTEBOOK, WORKER = map(pathlib.Path, sys.argv[1:3])
SEED, ENDS = int(sys.argv[3]), sys.argv[4:]
PID_FILE = WORKER.parent / "pid"
# The moment at which a signal comes, after the worker has started.
LATEST_SECONDS = 0.5
# A worker leaves within one second; a machine that is busy with something else may need some more.
PATIENCE_SECONDS = 10


async def until(condition, seconds):
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return condition()


def stat(process):
    """State and parent of a process; None when it is gone."""
    try:
        state, parent = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else (state, int(parent))


class Kernel:
    async def start(self):
        self.manager = AsyncKernelManager(kernel_name="rust")
        await self.manager.start_kernel(cwd=str(NOTEBOOK.parent), env={**os.environ, "ITERAGPU_WORKER": str(WORKER)})
        self.client = self.manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=120)

    async def stop(self):
        self.client.stop_channels()
        await self.manager.shutdown_kernel(now=True)

    async def measure(self):
        """Starts a measurement and gives the process number of its worker; None when there is none."""
        PID_FILE.unlink(missing_ok=True)
        cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
        self.client.execute("".join(next(cell["source"] for cell in cells if cell["id"] == "measurement")))
        started = await until(lambda: PID_FILE.exists() and PID_FILE.read_text().strip(), 300)
        return int(PID_FILE.read_text()) if started else None

    async def end(self, way, worker, moments):
        if way == "interrupt":
            await self.manager.interrupt_kernel()
        elif way == "restart":
            await self.manager.restart_kernel(now=False)
        elif way == "shutdown":
            await self.manager.shutdown_kernel(now=True)
        else:
            await asyncio.sleep(moments.uniform(0, LATEST_SECONDS))
            # The worker's parent is the process that runs the cells.
            os.kill(stat(worker)[1], signal.Signals[way])


async def outcome(kernel, way, moments):
    worker = await kernel.measure()
    if worker is None:
        return "never started", 0
    await kernel.end(way, worker, moments)
    ended = time.monotonic()
    gone = await until(lambda: stat(worker) is None, PATIENCE_SECONDS)
    return "gone" if gone else "still there", time.monotonic() - ended


async def main():
    moments = random.Random(SEED)
    kernel = None
    for way in ENDS:
        if kernel is None:
            kernel = Kernel()
            await kernel.start()
        found, seconds = await outcome(kernel, way, moments)
        print(f"{way}: {found} {seconds:.3f}", flush=True)
        if way not in signal.Signals.__members__ or found != "gone":
            await kernel.stop()
            kernel = None
    if kernel is not None:
        await kernel.stop()


asyncio.run(main())
