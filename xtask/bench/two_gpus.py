#!/usr/bin/env python3
"""On a machine with two NVIDIA GPUs: what the vendor's tool sees while one is measured, which card
each index names, and whether both, measured at once, count alike.

Arguments: the mesure-memoire program, a new JSON file for everything that was seen.
"""

import json
import os
import subprocess
import sys
import threading
import time

PROGRAM, OUTPUT = sys.argv[1:]
BOTH_AT_ONCE = ["--batch", "2", "--context", "128", "--width", "1024", "--digest"]
TRIALS = 20


def vendor(query):
    command = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().splitlines()


def mesure_memoire(*arguments, **variables):
    command = [PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})


def seen_while_second_card_is_measured():
    command = [PROGRAM, "measure", "--device", "cuda:1", "--batch", "1", "--context", "16", "--width", "64"]
    running = subprocess.Popen([*command, "--repeats", "300000"], stdout=subprocess.DEVNULL)
    seen = []
    while running.poll() is None and len(seen) < 14:
        seen.append((vendor("compute-apps=pid,gpu_bus_id,used_memory"), vendor("gpu=index,pci.bus_id,memory.used")))
        time.sleep(0.15)
    assert running.wait() == 0
    return seen


def environments():
    for variables, device in [({}, "cuda:0"), ({}, "cuda:1"), ({"CUDA_VISIBLE_DEVICES": "1"}, "cuda:0"),
                              ({"CUDA_VISIBLE_DEVICES": "1"}, "cuda:1")]:
        report = json.loads(mesure_memoire("environment", "--device", device, **variables).stdout)
        yield {"visible_devices": variables.get("CUDA_VISIBLE_DEVICES"), "report": report}


def both_at_once():
    measured = {"cuda:0": [], "cuda:1": []}

    def measure(device):
        for _ in range(TRIALS):
            result = mesure_memoire("measure", "--device", device, *BOTH_AT_ONCE)
            measured[device].append(json.loads(result.stdout) if result.returncode == 0 else result.stderr)

    threads = [threading.Thread(target=measure, args=(device,)) for device in measured]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return measured


def without_times(measurement):
    if isinstance(measurement, str):
        return measurement
    rows = [{key: value for key, value in row.items() if key != "elapsed_seconds"} for row in measurement["phases"]]
    return json.dumps([rows, measurement["digests_sha256"]], sort_keys=True)


def main():
    refused = mesure_memoire("measure", "--device", "cuda:2")
    kept = {
        "cards": vendor("gpu=index,name,pci.bus_id,memory.used,driver_version"),
        "while_cuda_1_runs": seen_while_second_card_is_measured(),
        "cuda_2": {"exit_code": refused.returncode, "stderr": refused.stderr.strip()},
        "environments": list(environments()),
        "both_at_once": both_at_once(),
    }
    with open(OUTPUT, "x", encoding="utf-8") as file:
        json.dump(kept, file, ensure_ascii=False, indent=1)
    distinct = {without_times(measurement) for trials in kept["both_at_once"].values() for measurement in trials}
    print(f"{2 * TRIALS} measurements, {len(distinct)} distinct sets of counters and digests")
    sys.exit(len(distinct) != 1)


main()
