"""Drives JupyterLab in Chromium as a person would, and reports what a person would see.

One JSON request on stdin, one JSON event a line on stdout. What the events mean for the user, what
counts as a failure and every message is the caller's business.
"""

import asyncio
import ctypes
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import nbformat
from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from playwright.async_api import Error as BrowserError
from playwright.async_api import async_playwright

KERNEL = "rust"

START_SECONDS = 90
STOP_SECONDS = 10
# JupyterLab itself, on a busy machine; cells have a limit of their own.
PAGE_SECONDS = 120
# evcxr sends stderr from a thread of its own, which can come after the end of the cell.
LATE_OUTPUT_SECONDS = 0.3

NOTEBOOK = ".jp-NotebookPanel:not(.lm-mod-hidden)"
# The line at the foot of the window: before it says so, JupyterLab would ask which kernel to take.
IDLE = '#jp-bottom-panel :text("Rust | Idle")'
DIALOG = ".jp-Dialog-content"
# The middle of the line at the foot of the window.
SOMEWHERE_ELSE = 640, 710

# Nothing of the browser's own leaves the machine, nor anything that a page asks for.
CHROMIUM_FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Grey edges of letters: the same on each machine, and smaller images.
    "--disable-lcd-text",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

# A finished cell: its number differs from the one before. A dialog is in the way of everything.
FINISHED = """([index, before]) => {
    const cell = document.querySelector(`.jp-Cell[data-windowed-list-index="${index}"]`);
    const prompt = cell.querySelector('.jp-InputPrompt').innerText.trim();
    return document.querySelector('.jp-Dialog') !== null || (/^\\[\\d+\\]:$/.test(prompt) && prompt !== before);
}"""

# What a cell shows, and what it must not do.
READ = """cell => {
    const area = cell.querySelector('.jp-Cell-outputArea');
    const all = area ? [...area.querySelectorAll('*')] : [];
    const red = '[data-mime-type="application/vnd.jupyter.stderr"], [data-mime-type="application/vnd.jupyter.error"]';
    const edge = area ? area.getBoundingClientRect().right + 1 : 0;
    const named = element => element.tagName.toLowerCase() + [...element.classList].map(name => '.' + name).join('');
    const wide = all.filter(element => element.scrollWidth > element.clientWidth + 1
            && !['visible', 'hidden', 'clip'].includes(getComputedStyle(element).overflowX)
        || element.getBoundingClientRect().right > edge && element.getBoundingClientRect().width > 1);
    return {
        text: area ? [...area.querySelectorAll('.jp-OutputArea-output')].map(output => output.innerText).join('\\n') : '',
        red: area ? [...area.querySelectorAll(red)].map(element => element.innerText) : [],
        scripts: all.filter(element => ['SCRIPT', 'IFRAME', 'OBJECT', 'EMBED'].includes(element.tagName)
            || element.getAttributeNames().some(name => name.startsWith('on'))).map(element => element.outerHTML),
        wide: wide.length ? [named(wide[0])] : [],
    };
}"""

# A cell that fits is shown with what precedes it, a taller one from its beginning.
SHOW = """cell => {
    const fits = cell.offsetHeight < cell.closest('.jp-WindowedPanel-outer').clientHeight;
    cell.scrollIntoView({block: fits ? 'end' : 'start', behavior: 'instant'});
}"""

PAGE_IS_WIDE = """() => [document.documentElement, document.querySelector('.jp-WindowedPanel-outer')]
    .some(element => element.scrollWidth > element.clientWidth + 1)"""


def emit(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


class Stopped(Exception):
    """The page does not let anybody go on."""


class Project:
    """A copy of the notebooks beside links to all else: whatever the cells write, the repository stays as it is."""

    def __init__(self, root, folder):
        self.folder = folder
        self.notebooks = folder / "notebooks"
        self.notebooks.mkdir(parents=True)
        for entry in root.iterdir():
            if entry.name not in ("notebooks", "target", ".git", ".venv"):
                (folder / entry.name).symlink_to(entry)

    def add(self, original):
        copy = self.notebooks / original.with_suffix(".ipynb").name
        copy.write_bytes(original.read_bytes())
        return copy

    def files(self):
        return {path.name: path.read_bytes() for path in self.notebooks.iterdir() if path.is_file()}


class Server:
    """JupyterLab with settings, state and files of its own; only the kernel is the user's."""

    def __init__(self, project, folder, session):
        self.project, self.folder = project, folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.token = secrets.token_hex(24)
        self.log = folder / "jupyterlab.log"
        # Kernels leave their build folders there when they are killed. Not below the repository, whose
        # workspace cargo would take these folders for.
        self.temporary = tempfile.TemporaryDirectory(prefix="iteragpu-", ignore_cleanup_errors=True)
        self.environment = self.own_environment(session)
        self.write_configuration(session)

    def own_environment(self, session):
        changed = {
            "JUPYTER_CONFIG_DIR": str(self.folder / "config"),
            "JUPYTER_DATA_DIR": str(self.folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.folder / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(self.folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.folder / "workspaces"),
            "TMPDIR": self.temporary.name,
        }
        if session["stand_in"]:
            stand_in = self.folder / session["stand_in"]
            stand_in.symlink_to(self.project.folder / "tests" / "stand-in-worker.sh")
            changed["ITERAGPU_WORKER"] = str(stand_in)
        return {**os.environ, **changed}

    def write_configuration(self, session):
        def write(path, content):
            path = self.folder / path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content))

        application = {
            "ServerApp": {
                "ip": "127.0.0.1",
                "port": self.port,
                "port_retries": 0,
                "open_browser": False,
                "root_dir": str(self.project.folder),
                "allow_root": True,
            },
            "IdentityProvider": {"token": self.token},
            "LabApp": {"check_for_updates_class": "jupyterlab.NeverCheckForUpdate", "extension_manager": "readonly"},
        }
        write("config/jupyter_server_config.json", application)
        announcements = "@jupyterlab/apputils-extension:announcements"
        write("config/labconfig/page_config.json", {"disabledExtensions": {announcements: True}})
        # After two minutes JupyterLab would save by itself, and nothing could be closed without saving.
        write("settings/@jupyterlab/docmanager-extension/plugin.jupyterlab-settings", {"autosave": False})
        theme = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}[session["theme"]]
        write("settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings", {"theme": theme})
        kernels = self.folder / "data" / "kernels"
        kernels.mkdir(parents=True)
        (kernels / KERNEL).symlink_to(KernelSpecManager().get_kernel_spec(KERNEL).resource_dir)

    def __enter__(self):
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab"],
                cwd=self.project.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for this program, which then stops the server in order.
                start_new_session=True,
                preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        return self

    def __exit__(self, *_):
        # It stops its kernels first.
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.temporary.cleanup()

    def address(self, path):
        return f"http://127.0.0.1:{self.port}/{path}?token={self.token}"

    def is_local(self, address):
        parts = urllib.parse.urlsplit(address)
        return parts.scheme in ("data", "blob", "about") or parts.netloc == f"127.0.0.1:{self.port}"

    async def ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Stopped(f"JupyterLab: exit status {self.process.returncode}")
            try:
                await asyncio.to_thread(urllib.request.urlopen, self.address("api/status"), timeout=5)
                return
            except (urllib.error.URLError, OSError):
                await asyncio.sleep(0.1)
        raise Stopped(f"JupyterLab: {START_SECONDS} s")


class Screen:
    """The one page of a session, and what it does besides showing."""

    def __init__(self, page, server, pictures, timeout):
        self.page, self.server, self.pictures, self.timeout = page, server, pictures, timeout
        self.away, self.complaints = [], []
        self.taken = 0
        self.kernel_was_restarted = False
        page.context.on("request", lambda request: self.requested(request.url))
        page.on("websocket", lambda websocket: self.requested(websocket.url))
        page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def requested(self, address):
        if not self.server.is_local(address):
            self.away.append(address)

    def noticed(self):
        """Since the last call."""
        noticed = {"requests": self.away, "complaints": self.complaints}
        self.away, self.complaints = [], []
        return noticed

    async def picture(self, whole=False):
        """The notebook, or the whole window with whatever is in the way."""
        self.taken += 1
        path = self.pictures / f"{self.taken:03}.png"
        area = None if whole else await self.page.locator(NOTEBOOK).bounding_box()
        await self.page.screenshot(path=path, clip=area, animations="disabled", caret="hide")
        return str(path)

    async def open(self, project, notebook):
        self.copy = project.add(pathlib.Path(notebook))
        self.before = project.files()
        self.cells = nbformat.read(self.copy, as_version=4).cells
        started = time.monotonic()
        await self.page.goto(self.server.address(f"lab/tree/notebooks/{self.copy.name}") + "&reset")
        await self.page.locator(f"{NOTEBOOK} .jp-Cell").first.wait_for()
        await self.page.locator(IDLE).wait_for()
        seconds = time.monotonic() - started
        # The list of files leaves too little room for the notebook.
        await self.page.get_by_role("tab", name="File Browser").click()
        emit("opened", seconds=seconds, **self.noticed())

    def cell(self, index):
        return self.page.locator(f'{NOTEBOOK} .jp-Cell[data-windowed-list-index="{index}"]')

    async def select(self, index):
        """Clicks where no cursor appears."""
        await self.cell(index).evaluate(SHOW)
        await self.cell(index).locator(".jp-Collapser").first.scroll_into_view_if_needed()
        await self.cell(index).locator(".jp-InputPrompt").first.click(force=True)
        await self.page.keyboard.press("Escape")
        # What is under the mouse looks different.
        await self.page.mouse.move(*SOMEWHERE_ELSE)

    async def walk_through(self):
        await self.select(0)
        for index in range(len(self.cells)):
            await self.run(index)

    async def run_tagged(self, tag):
        for index, cell in enumerate(self.cells):
            if cell.cell_type == "code" and tag in cell.metadata.get("tags", []):
                await self.select(index)
                await self.run(index)

    async def run_cell(self, cell_id):
        for index, cell in enumerate(self.cells):
            if cell.id == cell_id:
                await self.select(index)
                await self.run(index)

    async def run(self, index):
        if not await self.cell(index).evaluate("cell => cell.classList.contains('jp-mod-active')"):
            raise Stopped(f"{self.cells[index].id}: not the active cell")
        prompt = self.cell(index).locator(".jp-InputPrompt")
        before = (await prompt.inner_text()).strip() if self.cells[index].cell_type == "code" else ""
        self.noticed()
        started = time.monotonic()
        await self.page.keyboard.press("Shift+Enter")
        if self.cells[index].cell_type == "code":
            await self.page.wait_for_function(FINISHED, arg=[index, before], timeout=self.timeout * 1000)
            seconds = time.monotonic() - started
            if self.kernel_was_restarted and await self.accept_another_kernel():
                await self.select(index)
                return await self.run(index)
            self.kernel_was_restarted = False
            await self.refuse_dialog(self.cells[index].id)
            await self.report(index, seconds)

    async def accept_another_kernel(self):
        """A restarted kernel can die of a client that hangs up while it starts ("Broken pipe", evcxr 0.22), on a
        busy machine above all. JupyterLab says so and starts another one, and a person goes on with that."""
        dialog = self.page.locator(".jp-Dialog", has_text="Kernel Restarting")
        if not await dialog.count():
            return False
        await dialog.get_by_role("button", name="Ok").click()
        await self.page.locator(IDLE).wait_for()
        self.kernel_was_restarted = False
        self.noticed()
        emit("revived")
        return True

    async def refuse_dialog(self, where):
        dialog = self.page.locator(DIALOG)
        if await dialog.count():
            raise Stopped(f"{where}: {await dialog.first.inner_text()}")

    async def report(self, index, seconds):
        cell = self.cell(index)
        await asyncio.sleep(LATE_OUTPUT_SECONDS)
        # Where it is out of sight the browser need not lay it out.
        await cell.evaluate(SHOW)
        shown = await cell.evaluate(READ)
        count = int((await cell.locator(".jp-InputPrompt").inner_text()).strip("[]: \n"))
        picture = await self.picture()
        emit("cell", id=self.cells[index].id, seconds=seconds, count=count, picture=picture, **shown, **self.noticed())

    async def restart(self):
        started = time.monotonic()
        await self.menu("Kernel", "Restart Kernel and Clear Outputs of All Cells…")
        async with self.page.expect_response(lambda response: response.url.split("?")[0].endswith("/restart")):
            await self.page.locator(".jp-Dialog .jp-mod-accept").click()
        await self.page.locator(IDLE).wait_for()
        self.kernel_was_restarted = True
        emit("restarted", seconds=time.monotonic() - started, **self.noticed())

    async def menu(self, name, entry):
        await self.page.locator(".lm-MenuBar").get_by_role("menuitem", name=name, exact=True).click()
        await self.page.locator(".lm-Menu").get_by_role("menuitem", name=entry).click()

    async def close(self, project):
        wide = await self.page.evaluate(PAGE_IS_WIDE)
        await self.page.locator("#jp-main-dock-panel .lm-mod-current .lm-TabBar-tabCloseIcon").click()
        await self.page.locator(".jp-Dialog").get_by_role("button", name="Discard").click(timeout=PAGE_SECONDS * 1000)
        await self.page.locator(NOTEBOOK).wait_for(state="detached")
        after = project.files()
        emit(
            "closed",
            changed=[name for name, content in self.before.items() if after.get(name) != content],
            created=[name for name in after if name not in self.before],
            wide=wide,
            **self.noticed(),
        )


async def take(step, screen, project):
    match step["kind"]:
        case "open":
            await screen.open(project, step["notebook"])
        case "walk_through":
            await screen.walk_through()
        case "tagged":
            await screen.run_tagged(step["tag"])
        case "cell":
            await screen.run_cell(step["cell"])
        case "restart":
            await screen.restart()
        case "close":
            await screen.close(project)


async def run_session(number, session, chromium, request):
    folder = pathlib.Path(request["folder"])
    project = Project(pathlib.Path(request["root"]), folder / f"project-{number}")
    (own := folder / f"jupyter-{number}").mkdir()
    (pictures := folder / f"pictures-{number}").mkdir()
    with Server(project, own, session) as server:
        started = time.monotonic()
        screen = None
        try:
            await server.ready()
            emit("session", number=number, seconds=time.monotonic() - started)
            window = {"width": request["width"], "height": request["height"]}
            context = await chromium.new_context(viewport=window)
            context.set_default_timeout(PAGE_SECONDS * 1000)
            screen = Screen(await context.new_page(), server, pictures, request["timeout"])
            for step_number, step in enumerate(session["steps"]):
                emit("step", number=step_number)
                await take(step, screen, project)
            await context.close()
        except (Stopped, BrowserError) as error:
            picture = screen and await screen.picture(whole=True)
            emit("stopped", reason=str(error), picture=picture, log=str(server.log))


async def run(request):
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=request["chromium"],
            # Chromium's sandbox refuses to start for root.
            chromium_sandbox=os.getuid() != 0,
            args=CHROMIUM_FLAGS,
        )
        emit("browser", version=chromium.version)
        try:
            for number, session in enumerate(request["sessions"]):
                await run_session(number, session, chromium, request)
        finally:
            await chromium.close()


async def run_while_watched(request):
    """Ends with the caller: when it dies its side of our input closes."""
    task = asyncio.ensure_future(run(request))
    loop = asyncio.get_running_loop()

    def watch():
        sys.stdin.read()
        loop.call_soon_threadsafe(task.cancel)

    threading.Thread(target=watch, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    await task


def end_all_children():
    """Whoever is left has been given to this program as its child: kernels, and what they started."""
    while children := pathlib.Path("/proc/thread-self/children").read_text().split():
        for child in children:
            os.kill(int(child), signal.SIGKILL)
            os.waitpid(int(child), 0)


def kernel_exists():
    try:
        return shutil.which(KernelSpecManager().get_kernel_spec(KERNEL).argv[0]) is not None
    except NoSuchKernel:
        return False


def main():
    request = json.loads(sys.stdin.readline())
    if not kernel_exists():
        return emit("no_kernel", name=KERNEL)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        asyncio.run(run_while_watched(request))
    except (asyncio.CancelledError, BrokenPipeError):
        # Nobody listens any more.
        end_all_children()
        os._exit(1)
    end_all_children()
    emit("finished")


main()
