"""Reads files as their own tool would: for each, a line of JSON with what the tool understood, or its refusal.

Nothing may leave the machine: an attempt to reach a network, or to start a program, is refused. The last line is
what becomes of such an attempt.
"""

import json
import socket
import sys
import tempfile
from pathlib import Path

FORBIDDEN = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "subprocess.Popen",
             "os.system", "os.posix_spawn", "os.exec"}


def forbid_leaving(event, arguments):
    if event in FORBIDDEN:
        raise PermissionError(f"{event} {arguments!r}")


def skypilot(file, settings):
    import sky
    from sky.utils import yaml_utils

    text = file.read_text(encoding="utf-8")
    yaml_utils.check_no_duplicate_keys(text)
    # What `sky launch --env` does.
    task = sky.Task.from_yaml_config(yaml_utils.safe_load(text), env_overrides=settings)
    # An accelerator that no cloud has, or a bucket name that none accepts, is not looked up: that asks the clouds.
    resources = ", ".join(str(resource) for resource in task.resources)
    stores = {place: store.name for place, store in task.storage_mounts.items()}
    told = f"{task.name} : {resources} ; seaux {stores}"
    archives = {task.workdir: zip_bytes(file.parents[2] / task.workdir)}
    return {"told": told, "setup": task.setup, "run": task.run, "environment": task.envs, "archives": archives}


def dstack(file, settings):
    import yaml
    from dstack._internal.core.models.configurations import parse_apply_configuration

    # What `dstack apply -f` does.
    read = parse_apply_configuration(yaml.safe_load(file.read_text(encoding="utf-8")))
    if read.type == "fleet":
        told = f"parc {read.name} : {read.nodes.min} à {read.nodes.max} machines"
        return {"told": told, "setup": None, "run": None, "environment": {}, "archives": {}}
    told = f"{read.type} {read.name} : {read.resources.pretty_format()}"
    environment = {**read.env.as_dict(), **dict(settings)}
    archives = {mapping.local_path: tar_bytes(file.parent / mapping.local_path) for mapping in read.files}
    # As its server joins them: `_join_shell_commands`.
    return {"told": told, "setup": None, "run": " && ".join(read.commands), "environment": environment,
            "archives": archives}


def zip_bytes(folder):
    from sky.data import storage_utils

    with tempfile.NamedTemporaryFile() as archive:
        storage_utils.zip_files_and_folders([str(folder.resolve())], archive.name)
        return Path(archive.name).stat().st_size


def tar_bytes(folder):
    from dstack._internal.utils.files import create_file_archive

    with tempfile.TemporaryFile() as archive:
        create_file_archive(folder.resolve(), archive)
        return archive.seek(0, 2)


def leave():
    """What must never succeed here."""
    # An address that is reserved for documentation.
    socket.create_connection(("192.0.2.1", 9), timeout=1)


def outcome(reading):
    try:
        return {"read": reading()}
    except Exception as error:
        return {"refused": f"{type(error).__name__} : {error}"}


def main():
    tool, settings, *files = sys.argv[1:]
    reader = {"skypilot": skypilot, "dstack": dstack}[tool]
    sys.addaudithook(forbid_leaving)
    for file in files:
        print(json.dumps(outcome(lambda: reader(Path(file), list(json.loads(settings).items())))))
    print(json.dumps(outcome(leave)))


main()
