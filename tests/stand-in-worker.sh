#!/bin/sh
# A stand-in for the worker, which speaks the protocol and misbehaves on demand. Tests link to it
# under the name of a behaviour.
VERSION=0.1.0
hello() { printf '{"message":"hello","worker_version":"%s"}\n' "$1"; }
counters='"baseline_allocated_bytes":1,"baseline_reserved_bytes":2,"end_allocated_bytes":3,"end_reserved_bytes":4,"peak_allocated_bytes":3,"peak_reserved_bytes":6'
row() { printf '{"message":"phase","row":{"phase":"%s","run_index":%s,"elapsed_seconds":0.5,%s%s}}\n' "$1" "$2" "$counters" "$3"; }
rows() { row model_load 0; row inputs 0; row cold_forward 0; row warmup 0 ",\"iterations\":$warmup"; row warm_forward 1; row warm_forward 2; }
# Passes beyond these two.
more_rows() { i=3; while [ $i -le "$repeats" ]; do row warm_forward $i; i=$((i + 1)); done; }
environment='"environment":{"tch_version":"0.24.0","torch_version":"2.11.0+cu130","cuda_build_version":"13.0","hip_build_version":null,"visible_device_count":1,"selected_device":{"name":"Stand-in <script>","pci_bus_id":"0000:3B:00.0","total_bytes":7,"compute_capability":"7.5","bfloat16":"emulated"},"driver_version":null,"runtime_settings":{"allocator_backend":"native","expandable_segments":true,"large_segment_bytes":20971520,"max_split_bytes":null,"max_non_split_rounding_bytes":20971520,"roundup_power2_divisions":[],"garbage_collection_threshold":0.0,"cublas_workspace_bytes":8519680,"cublaslt_workspace_bytes":1048576,"set_outside":[]},"failure":null}'
measured() { printf '{"message":"measured",%s,"synthetic_model":{"definition":"Linear(width,width), GELU, Linear(width,width)","parameter_count":%s,"parameter_bytes":%s}%s}\n' "$environment" "$parameters" "${bytes:-$((4 * parameters))}" "$device_time"; }
largest() {
  awk -v warmup="$warmup" -v repeats="$(printf %s "$1" | sed -n 's/.*"repeats":\([0-9]*\).*/\1/p')" 'BEGIN {
    counters = "\"elapsed_seconds\":1.2345678901234567e-101"
    split("baseline_allocated baseline_reserved end_allocated end_reserved peak_allocated peak_reserved", names, " ")
    for (i = 1; i <= 6; i++) counters = counters ",\"" names[i] "_bytes\":18446744073709551615"
    row = "{\"message\":\"phase\",\"row\":{\"phase\":\"%s\",\"run_index\":%d," counters "%s}}\n"
    split("model_load inputs cold_forward", phases, " ")
    for (i = 1; i <= 3; i++) printf row, phases[i], 0, ""
    printf row, "warmup", 0, ",\"iterations\":" warmup
    for (run = 1; run <= repeats; run++) printf row, "warm_forward", run, ""
  }'
  seconds=$(awk -v passes="$passes" 'BEGIN { for (i = 1; i <= passes; i++) printf "%s1.2345678901234567e-101", (i > 1 ? "," : "") }')
  device_time=$(printf ',"device_time":{"forward":[%s],"graph_replay":[%s],"graph_failure":null}' "$seconds" "$seconds")
  measured
}
failed() { printf '{"message":"failed","failure":{%s}}\n' "$1"; }

read -r request
width=$(printf %s "$request" | sed -n 's/.*"width":\([0-9]*\).*/\1/p')
warmup=$(printf %s "$request" | sed -n 's/.*"warmup":\([0-9]*\).*/\1/p')
repeats=$(printf %s "$request" | sed -n 's/.*"repeats":\([0-9]*\).*/\1/p')
passes=$(printf %s "$request" | sed -n 's/.*"device_passes":\([0-9]*\).*/\1/p')
# Times of N passes: 0.5, 1.5, 2.5, ... seconds.
seconds() { i=0; while [ $i -lt "$1" ]; do printf '%s%s.5' "${comma:-}" "$i"; comma=,; i=$((i + 1)); done; comma=; }
observed() { printf ',"device_time":{"forward":[%s],"graph_replay":%s,"graph_failure":%s}' "$(seconds "$1")" "$2" "$3"; }
device_time=${passes:+$(observed "$passes" "[$(seconds "$passes")]" null)}
parameters=$((2 * ${width:-0} * (${width:-0} + 1)))
case $(basename "$0") in
good) hello "$VERSION"; rows; measured ;;
# Answers every request.
obliging)
  hello "$VERSION"
  case $request in *'"request":"environment"'*) printf '{"message":"environment",%s}\n' "$environment"; exit ;; esac
  rows; more_rows; measured ;;
# Answers every request; what it has been asked is counted, and files beside it change its answers.
explorer)
  beside=$(dirname "$0")
  hello "$VERSION"
  if [ -e "$beside/other-gpu" ]; then environment=$(printf %s "$environment" | sed 's/0000:3B/0000:3C/'); fi
  if [ -e "$beside/gone" ]; then failed '"kind":"no_visible_gpu"'; exit; fi
  case $request in *'"request":"environment"'*) printf '{"message":"environment",%s}\n' "$environment"; exit ;; esac
  echo "$width" >> "$beside/asked"
  # How many lines the exploration's file has when this run starts.
  if [ -e "$beside/exploration.jsonl" ]; then wc -l < "$beside/exploration.jsonl" >> "$beside/lines"; fi
  if [ -e "$beside/slow" ]; then sleep 0.05; fi
  if [ "$width" -ge 1000 ]; then failed '"kind":"out_of_gpu_memory","words":"CUDA out of memory."'; exit; fi
  if [ "$width" -eq 77 ]; then touch "$beside/gone"; kill -KILL $$; fi
  # The longest answer that there is: numbers of as many digits as they may have.
  if [ -e "$beside/largest" ]; then largest "$request"; exit; fi
  rows; more_rows; measured ;;
no-graph) hello "$VERSION"; rows; device_time=$(observed "$passes" null '{"kind":"out_of_gpu_memory","words":"CUDA out of memory"}'); measured ;;
few-passes) hello "$VERSION"; rows; device_time=$(observed 1 '[0.5]' null); measured ;;
no-device-time) hello "$VERSION"; rows; device_time=; measured ;;
no-reason) hello "$VERSION"; printf '{"message":"environment",%s}\n' "$(printf %s "$environment" | sed 's/"selected_device":{[^}]*}/"selected_device":null/')" ;;
invisible) hello "$VERSION"; rows; environment=$(printf %s "$environment" | sed 's/"visible_device_count":1/"visible_device_count":0/'); measured ;;
wrong-bytes) hello "$VERSION"; rows; bytes=5; measured ;;
good-environment) hello "$VERSION"; printf '{"message":"environment",%s}\n' "$environment" ;;
talkative) hello "$VERSION"; i=0; while [ $i -lt 3000 ]; do echo "0123456789012345678901234567890123456789012345678901234567890123456789" >&2; i=$((i + 1)); done; rows; measured ;;
slow) hello "$VERSION"; row model_load 0; sleep 1; row inputs 0; row cold_forward 0; row warmup 0 ",\"iterations\":$warmup"; row warm_forward 1; row warm_forward 2; measured ;;
# Measures for a third of a second and, as the real one does, leaves at once when its input closes.
paced)
  hello "$VERSION"
  exec 3<&0
  { cat <&3; kill -KILL $$; } > /dev/null 2>&1 &
  rows | while read -r line; do sleep 0.05; printf '%s\n' "$line"; done
  kill $!
  measured ;;
# Says nothing for longer than one glance at it.
late) sleep 1; hello "$VERSION"; rows; measured ;;
lingering) echo $$ > "$(dirname "$0")/pid"; hello "$VERSION"; rows; measured; exec sleep 600 ;;
silent) exec sleep 600 ;;
silent-after-hello) hello "$VERSION"; exec sleep 600 ;;
# Runs on until its input closes, as the real one does.
endless) hello "$VERSION"; row model_load 0; echo $$ > "$(dirname "$0")/pid"; exec cat ;;
# Runs on whatever happens to its input, for a while.
stubborn) hello "$VERSION"; row model_load 0; echo $$ > "$(dirname "$0")/pid"; exec sleep 20 ;;
flood) hello "$VERSION"; while :; do row model_load 0; done ;;
grandchild) hello "$VERSION"; row model_load 0; sleep 20 & kill -KILL $$ ;;
no-device) hello "$VERSION"; rows; environment=$(printf %s "$environment" | sed 's/"failure":null/"failure":{"kind":"no_visible_gpu"}/'); measured ;;
zeros) hello "$VERSION"; counters=$(printf %s "$counters" | sed 's/:[0-9]/:0/g'); rows; measured ;;
impossible) hello "$VERSION"; counters=$(printf %s "$counters" | sed 's/"peak_allocated_bytes":3/"peak_allocated_bytes":2/'); rows; measured ;;
negative) hello "$VERSION"; rows | sed 's/0.5/-0.5/'; measured ;;
wrong-iterations) hello "$VERSION"; warmup=9; rows; measured ;;
wrong-model) hello "$VERSION"; rows; parameters=5; measured ;;
garbage) echo 'Segmentation tree ready'; exec sleep 600 ;;
binary) printf '\377\376\000\001\n'; exec sleep 600 ;;
endless-line) exec cat /dev/zero ;;
half) hello "$VERSION"; rows; printf '{"message":"measu' ;;
half-killed) hello "$VERSION"; printf '{"message":"pha'; kill -KILL $$ ;;
killed) hello "$VERSION"; row model_load 0; kill -KILL $$ ;;
terminated) hello "$VERSION"; kill -TERM $$ ;;
crashed) hello "$VERSION"; echo "terminate called after throwing an instance of 'c10::Error'" >&2; exit 3 ;;
aborted) hello "$VERSION"; printf '%s\n' "terminate called after throwing an instance of 'c10::Error'" '  what():  Error in /some/where/libcuda.so.1: no entry' 'Exception raised from check' 'frame #0: <unknown function>' >&2; kill -ABRT $$ ;;
quiet-exit) hello "$VERSION"; exit 0 ;;
no-library) echo "$0: error while loading shared libraries: libtorch_cuda.so: cannot open shared object file: No such file or directory" >&2; exit 127 ;;
other-library) echo "$0: symbol lookup error: $0: undefined symbol: _ZN3c105ErrorC1Ev" >&2; exit 127 ;;
other-version) hello 9.9.9; rows; measured ;;
no-hello) rows; measured ;;
two-hellos) hello "$VERSION"; hello "$VERSION" ;;
environment-instead) hello "$VERSION"; printf '{"message":"environment",%s}\n' "$environment" ;;
missing-phase) hello "$VERSION"; row model_load 0; row cold_forward 0; row warmup 0; row warm_forward 1; row warm_forward 2; measured ;;
no-backend) hello "$VERSION"; failed '"kind":"gpu_backend_missing"' ;;
no-gpu) hello "$VERSION"; failed '"kind":"no_visible_gpu"' ;;
start-up) hello "$VERSION"; failed '"kind":"cuda_startup","code":802,"name":"cudaErrorSystemNotReady","words":"system not yet initialized"' ;;
out-of-range) hello "$VERSION"; failed '"kind":"device_index_out_of_range","index":7,"visible":1' ;;
busy) hello "$VERSION"; failed '"kind":"device_busy","words":"CUDA-capable device(s) is/are busy or unavailable"' ;;
gpu-memory) hello "$VERSION"; rows; failed '"kind":"out_of_gpu_memory","words":"CUDA out of memory."' ;;
host-memory) hello "$VERSION"; failed '"kind":"out_of_host_memory","words":"not enough memory"' ;;
no-cache) hello "$VERSION"; failed '"kind":"caching_allocator_off"' ;;
no-bfloat16) hello "$VERSION"; failed '"kind":"bfloat16_not_declared","words":"not implemented"' ;;
other-libtorch) hello "$VERSION"; failed '"kind":"libtorch_version","loaded":"2.10.0","expected":"2.11.0"' ;;
libtorch) hello "$VERSION"; failed '"kind":"libtorch","words":"mat1 and mat2"' ;;
bad-request) hello "$VERSION"; failed '"kind":"bad_request","words":"missing field"' ;;
unknown-kind) hello "$VERSION"; failed '"kind":"from_the_future"' ;;
*) echo "no such behaviour: $0" >&2; exit 99 ;;
esac
