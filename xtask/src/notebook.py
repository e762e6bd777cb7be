"""Executes the code cells of a notebook in its kernel and reports on each.

One JSON request on stdin, one JSON event a line on stdout. What the events mean for
the user, what counts as a failure and every message is the caller's business.
"""

import asyncio
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import nbformat
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.validator import iter_validate

# evcxr sends stderr from a thread of its own, so a panic's text can come after the cell
# has been declared done; nbclient would drop it.
LATE_OUTPUT_SECONDS = 0.3
# After the last cell nobody waits any more, so what a thread still does would go unseen.
LAST_OUTPUT_SECONDS = 1.0


def emit(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


class Invalid(Exception):
    pass


def parse(text):
    try:
        # A lone surrogate can be written in JSON, but not sent to a kernel.
        json.dumps(json.loads(text), ensure_ascii=False).encode()
        notebook = json.loads(text)
        version = (notebook["nbformat"], notebook["nbformat_minor"])
    except (ValueError, TypeError, KeyError) as error:
        raise Invalid(repr(error)) from error
    if version != (4, 5):
        raise Invalid(f"nbformat {version[0]}.{version[1]}")
    # Not nbformat.validate, which warns about a missing id instead of refusing it.
    for error in iter_validate(notebook, version=4, version_minor=5):
        raise Invalid(str(error).split("\n\n")[0])
    ids = [cell["id"] for cell in notebook["cells"]]
    for cell_id in ids:
        if ids.count(cell_id) > 1:
            raise Invalid(f"id {cell_id!r}: {ids.count(cell_id)} cells")
    if "name" not in notebook["metadata"].get("kernelspec", {}):
        raise Invalid("metadata.kernelspec.name")
    return nbformat.reads(text, as_version=4)


def kernel_exists(name):
    try:
        return shutil.which(KernelSpecManager().get_kernel_spec(name).argv[0]) is not None
    except NoSuchKernel:
        return False


def is_selected(cell, tags, skip_tags):
    if not set(skip_tags).isdisjoint(cell.metadata.get("tags", [])):
        return False
    if cell.cell_type != "code" or not cell.source.strip():
        return False
    return not tags or not set(tags).isdisjoint(cell.metadata.get("tags", []))


def summary(cell, seconds):
    def streamed(name):
        return "".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == name)

    return {
        "id": cell.id,
        "seconds": seconds,
        "may_raise": "raises-exception" in cell.metadata.get("tags", []),
        "stdout": streamed("stdout"),
        "stderr": streamed("stderr"),
        "errors": ["\n".join(o.traceback) for o in cell.outputs if o.output_type == "error"],
        "results": [
            str(o.data[mime_type])
            for o in cell.outputs
            if o.output_type in ("execute_result", "display_data")
            # The first is the one that is shown: plain text reads best in a terminal.
            for mime_type in sorted(o.data, key=lambda mime_type: mime_type != "text/plain")
        ],
    }


async def execute(notebook, tags, skip_tags, timeout, folder, log):
    seconds = 0.0
    selected = [index for index, cell in enumerate(notebook.cells) if is_selected(cell, tags, skip_tags)]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # What was stored before must not pass for what this run shows.
            cell.outputs, cell.execution_count = [], None

    async def after_cell(cell, cell_index, execute_reply):
        nonlocal seconds
        seconds = time.monotonic() - started
        last = cell_index == selected[-1]
        deadline = time.monotonic() + (LAST_OUTPUT_SECONDS if last else LATE_OUTPUT_SECONDS)
        while (left := deadline - time.monotonic()) > 0:
            try:
                message = await client.kc.iopub_channel.get_msg(timeout=left)
            except queue.Empty:
                return
            if message["msg_type"] in ("stream", "error", "display_data", "execute_result"):
                client.output(cell.outputs, message, None, cell_index)

    client = NotebookClient(
        notebook,
        timeout=timeout,
        allow_errors=True,
        record_timing=False,
        # nbclient would skip such cells silently.
        skip_cells_with_tag="",
        on_cell_executed=after_cell,
        resources={"metadata": {"path": folder}},
    )
    cell = None
    try:
        # Left to itself the kernel writes between our lines: a greeting, and each crate it compiles.
        async with client.async_setup_kernel(stdout=subprocess.DEVNULL, stderr=log):
            for index in selected:
                cell = notebook.cells[index]
                started = time.monotonic()
                await client.async_execute_cell(cell, index)
                emit("cell", **summary(cell, seconds))
    except (CellTimeoutError, DeadKernelError, RuntimeError) as error:
        reason = "timeout" if isinstance(error, CellTimeoutError) else "died"
        log.seek(0)
        emit("stopped", cell=cell and cell.id, reason=reason, log=log.read().decode(errors="replace"))


async def execute_while_watched(*arguments):
    """Ends with the caller: when it dies its side of our input closes, and the kernel must not stay."""
    task = asyncio.ensure_future(execute(*arguments))
    loop = asyncio.get_running_loop()

    def watch():
        sys.stdin.read()
        loop.call_soon_threadsafe(task.cancel)

    threading.Thread(target=watch, daemon=True).start()
    await task


def main():
    request = json.loads(sys.stdin.readline())
    try:
        notebook = parse(request["text"])
    except Invalid as error:
        return emit("invalid", reason=str(error))
    name = notebook.metadata.kernelspec.name
    if not kernel_exists(name):
        return emit("no_kernel", name=name)
    with tempfile.TemporaryFile() as log:
        try:
            asyncio.run(
                execute_while_watched(
                    notebook, request["tags"], request["skip_tags"], request["timeout"], request["folder"], log
                )
            )
        except (asyncio.CancelledError, BrokenPipeError):
            # Nobody listens any more.
            os._exit(1)
    emit("finished", notebook=nbformat.writes(notebook) + "\n")


main()
