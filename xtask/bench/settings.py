#!/usr/bin/env python3
"""What each setting of PyTorch and CUDA does to one measurement, on a machine with an NVIDIA GPU.

Arguments: the mesure-memoire program, a new JSON file for every measurement or refusal.
"""

import json
import os
import subprocess
import sys

PROGRAM, OUTPUT = sys.argv[1:]
MEASURE = ["measure", "--batch", "2", "--context", "128", "--width", "1024", "--repeats", "9", "--digest"]
ALLOCATOR = [
    "expandable_segments:True",
    "backend:cudaMallocAsync",
    "large_segment_size_mb:40",
    "max_split_size_mb:32",
    "max_non_split_rounding_mb:64",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.5",
    "per_process_memory_fraction:0.5",
    "nonsense:1",
]
OTHERS = [
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", "0"),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", ""),
    ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ("CUBLAS_WORKSPACE_CONFIG", ":16:8"),
    ("CUBLAS_WORKSPACE_CONFIG", ":0:0"),
    ("CUBLASLT_WORKSPACE_SIZE", "64"),
    ("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "1"),
    ("DISABLE_ADDMM_CUDA_LT", "1"),
    ("TORCH_BLAS_PREFER_CUBLASLT", "1"),
    ("PYTORCH_TUNABLEOP_ENABLED", "1"),
    ("NVIDIA_TF32_OVERRIDE", "1"),
    ("CUDA_LAUNCH_BLOCKING", "1"),
    ("CUDA_MODULE_LOADING", "EAGER"),
    ("CUDA_FORCE_PTX_JIT", "1"),
]


def outcome(name, value):
    environment = {**os.environ, **({name: value} if name else {})}
    result = subprocess.run([PROGRAM, *MEASURE], capture_output=True, text=True, env=environment)
    measured = json.loads(result.stdout) if result.returncode == 0 else None
    return {
        "setting": f"{name}={value}" if name else None,
        "exit_code": result.returncode,
        "measurement": measured,
        "refusal": result.stderr.strip() or None,
    }


# The first process of a machine loads everything from disk: it is not kept.
outcome(None, None)
settings = [(None, None), *(("PYTORCH_ALLOC_CONF", value) for value in ALLOCATOR), *OTHERS, (None, None)]
with open(OUTPUT, "x", encoding="utf-8") as kept:
    json.dump([outcome(*setting) for setting in settings], kept, ensure_ascii=False, indent=1)
    kept.write("\n")
