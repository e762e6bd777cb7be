"""The device's own time of a pass and what the host adds to it, beside the original and beside PyTorch itself.

Runs on a machine with a GPU and PyTorch: python3 device_time.py OURS ORIGINAL OUTPUT.json [RUNS]
All programs in turn, fresh processes, every observation kept. Three things are looked at:
1. do the phase rows stay the same when the device's time is asked for (counters equal, times beside each other);
2. the host's part: elapsed time of a warm pass minus the graph-replay floor and minus the time between events,
   of this project and of the original;
3. the floor itself, measured once more by PyTorch's own events and its own CUDAGraph, in another process.
"""
import json
import statistics
import subprocess
import sys

CONFIGURATIONS = [(1, 16, 64, "float32"), (2, 128, 1024, "float32"), (1, 16, 64, "bfloat16"), (16, 512, 2048, "float16")]
REPEATS, PASSES = 50, 200

PYTORCH = """
import json, sys, torch
batch, context, width, dtype, passes = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
torch.set_float32_matmul_precision("highest")
device, dtype = torch.device("cuda:0"), getattr(torch, dtype)
torch.manual_seed(1729)
model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, width))
model = model.to(device=device, dtype=dtype).eval()
inputs = torch.randn(batch, context, width, device=device, dtype=dtype)
def event(): return torch.cuda.Event(enable_timing=True)
with torch.inference_mode():
    for _ in range(5): model(inputs)
    torch.cuda.synchronize()
    forward = []
    for _ in range(passes):
        start, end = event(), event()
        start.record(); output = model(inputs); end.record()
        torch.cuda.synchronize()
        forward.append(start.elapsed_time(end) / 1000)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3): model(inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side): captured = model(inputs)
    with torch.cuda.stream(side):
        graph.replay()
        events = [event() for _ in range(passes + 1)]
        events[0].record()
        for following in events[1:]:
            graph.replay(); following.record()
        torch.cuda.synchronize()
        replays = [one.elapsed_time(other) / 1000 for one, other in zip(events, events[1:])]
        start, end = event(), event()
        graph.replay(); start.record()
        for _ in range(passes): graph.replay()
        end.record()
        torch.cuda.synchronize()
        together = start.elapsed_time(end) / 1000 / passes
assert torch.equal(captured, output)
print(json.dumps({"forward": forward, "graph_replay": replays, "graph_replay_together": together}))
"""


def output_of(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def options(configuration):
    names = ["--batch", "--context", "--width", "--dtype"]
    pairs = [[name, str(value)] for name, value in zip(names, configuration)]
    return ["measure", *sum(pairs, []), "--repeats", str(REPEATS)]


def warm(measurement):
    return [row["elapsed_seconds"] for row in measurement["phases"] if row["phase"] == "warm_forward"]


def counters(measurement):
    return [[value for key, value in row.items() if key.endswith("_bytes")] for row in measurement["phases"]]


def observe(ours, original, configuration, runs):
    seen = {"configuration": configuration, "counters_equal": True, "original": [], "plain": [], "with_device_time": [],
            "forward": [], "graph_replay": [], "pytorch_forward": [], "pytorch_graph_replay": [],
            "pytorch_graph_replay_together": []}
    for run in range(runs + 1):
        theirs = output_of(["python3", original, *options(configuration)])
        plain = output_of([ours, *options(configuration)])
        timed = output_of([ours, *options(configuration), "--device-time", str(PASSES)])
        pytorch = output_of(["python3", "-c", PYTORCH, *map(str, configuration), str(PASSES)])
        seen["counters_equal"] &= counters(theirs) == counters(plain) == counters(timed)
        if run == 0:
            continue  # fills the caches
        seen["original"] += warm(theirs)
        seen["plain"] += warm(plain)
        seen["with_device_time"] += warm(timed)
        seen["forward"] += timed["device_time"]["forward"]["device_seconds"]
        seen["graph_replay"] += timed["device_time"]["graph_replay"]["device_seconds"]
        seen["pytorch_forward"] += pytorch["forward"]
        seen["pytorch_graph_replay"] += pytorch["graph_replay"]
        seen["pytorch_graph_replay_together"].append(pytorch["graph_replay_together"])
    return seen, plain["environment"]


def main():
    ours, original, kept = sys.argv[1:4]
    runs = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    results = []
    for configuration in CONFIGURATIONS:
        seen, environment = observe(ours, original, configuration, runs)
        results.append(seen)
        median = {key: statistics.median(value) * 1e6 for key, value in seen.items() if isinstance(value, list) and key != "configuration"}
        print(configuration, "counters equal:", seen["counters_equal"])
        print("  ", {key: round(value, 2) for key, value in median.items()})
        floor = median["pytorch_graph_replay_together"]
        print(f"   warm / floor {median['plain'] / median['graph_replay']:.2f}, / PyTorch's own floor {median['plain'] / floor:.2f}")
        for name in ["original", "plain"]:
            print(f"   {name}: elapsed - floor {median[name] - median['graph_replay']:.1f} us, - forward {median[name] - median['forward']:.1f} us")
    with open(kept, "x", encoding="utf-8") as file:
        json.dump({"environment": environment, "repeats": REPEATS, "passes": PASSES, "runs": runs, "results": results}, file)
        file.write("\n")


main()
