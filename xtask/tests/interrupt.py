"""Interrupts, restarts and stops a kernel whose cell is measuring, and reports whether the worker left.

Arguments: the notebook, the worker (which writes its process number to a file `pid` beside itself
and runs until its input closes).
"""

import asyncio
import json
import os
import pathlib
import sys
import time

from jupyter_client.manager import AsyncKernelManager

NOTEBOOK, WORKER = map(pathlib.Path, sys.argv[1:])
PID_FILE = WORKER.parent / "pid"


async def until(condition, seconds):
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return condition()


def running(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


async def worker_ends_after(end):
    PID_FILE.unlink(missing_ok=True)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    source = "".join(next(cell["source"] for cell in cells if cell["id"] == "measurement"))
    manager = AsyncKernelManager(kernel_name="rust")
    await manager.start_kernel(cwd=str(NOTEBOOK.parent), env={**os.environ, "ITERAGPU_WORKER": str(WORKER)})
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=120)
        client.execute(source)
        if not await until(lambda: PID_FILE.exists() and PID_FILE.read_text().strip(), 300):
            return "never started"
        process = int(PID_FILE.read_text())
        await end(manager)
        return "gone" if await until(lambda: not running(process), 1) else "still there"
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def main():
    ends = {
        "interrupt": lambda manager: manager.interrupt_kernel(),
        "restart": lambda manager: manager.restart_kernel(now=False),
        "shutdown": lambda manager: manager.shutdown_kernel(now=True),
    }
    for name, end in ends.items():
        print(f"{name}: {await worker_ends_after(end)}", flush=True)


asyncio.run(main())
