#!/usr/bin/env bash
# Runs Lockstep's GPU tests on a machine with an NVIDIA driver and NVRTC, and no Rust toolchain.
#
#   ./run.sh            env, quick X1, golden, the relations on host and GPU, SmolLM2 if its file is there
#   ./run.sh env        what is there
#   ./run.sh x1 [ARGS]  host against GPU, bit for bit; see the variables below
#   ./run.sh golden [ARGS]      host and GPU against snapshots/; what is new is proposed there as *.snap.new
#   ./run.sh relations [ARGS]
#   ./run.sh real_model [ARGS]  SmolLM2: its file here, or named by LOCKSTEP_SMOLLM2
#   ./run.sh fidelity --ignored --nocapture NAME  measures F1's bounds again: tiny_bf16, tiny_f16, small_bf16, qwen3_bf16
#   ./run.sh lockstep ARGS...
#
# NVRTC: a folder with libnvrtc.so.12 or .13 in LOCKSTEP_NVRTC, or any usual place.
# Exit code: 0 all passed, else that of the first step that did not.
set -u
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$here" || exit 2

export LOCKSTEP_REQUIRE_GPU="${LOCKSTEP_REQUIRE_GPU:-1}"
export LOCKSTEP_REGRESSIONS="${LOCKSTEP_REGRESSIONS:-$here/tests/regressions}"
export LOCKSTEP_GOLDEN="${LOCKSTEP_GOLDEN:-$here/snapshots}"
# Else insta asks cargo, which is not there.
export INSTA_WORKSPACE_ROOT="${INSTA_WORKSPACE_ROOT:-$here}"
export LOCKSTEP_DATA="${LOCKSTEP_DATA:-$here/tests/data}"
export LOCKSTEP_SMOLLM2="${LOCKSTEP_SMOLLM2:-$here/smollm2-135m-instruct.gguf}"
# As many queues as executions at once: each has a stream of its own.
export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-32}"
export RUST_BACKTRACE="${RUST_BACKTRACE:-1}"

# The first folder that holds NVRTC; nothing if the loader finds it by itself.
nvrtc_folder() {
    local folder
    for folder in "${LOCKSTEP_NVRTC:-}" /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib \
        /usr/local/cuda-1[23]*/lib64 /usr/local/lib/python3*/*-packages/nvidia/c*/lib \
        /usr/lib/python3*/*-packages/nvidia/c*/lib /opt/*/lib/python3*/site-packages/nvidia/c*/lib; do
        if [ -n "$folder" ] && compgen -G "$folder/libnvrtc.so*" >/dev/null; then
            echo "$folder"
            return
        fi
    done
    folder="$(find / -xdev -name 'libnvrtc.so.1[23]*' -not -path '*/proc/*' 2>/dev/null | head -n 1)"
    [ -n "$folder" ] && dirname "$folder"
}

folder="$(nvrtc_folder)"
if [ -n "$folder" ]; then
    export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    # A folder of a pip package or a toolkit may lack the link without a version.
    if [ ! -e "$folder/libnvrtc.so" ] && [ ! -e "$folder/libnvrtc.so.12" ] && [ ! -e "$folder/libnvrtc.so.13" ]; then
        echo "run.sh: no libnvrtc.so, .12 or .13 in $folder" >&2
    fi
fi
echo "run.sh: NVRTC in ${folder:-the path of the loader}" >&2

step() {
    echo "=== $* (after $SECONDS s)"
    "$@"
    local code=$?
    echo "=== exit code $code"
    return "$code"
}

first=0
run() {
    step "$@"
    local code=$?
    if [ "$first" -eq 0 ]; then first=$code; fi
}

case "${1:-all}" in
env) run ./lockstep env ;;
x1 | golden | relations | real_model | fidelity | lockstep)
    program="$1"
    shift
    run "./$program" "$@"
    ;;
all)
    run ./lockstep env
    run ./x1
    run ./golden
    run ./relations
    if [ -e "$LOCKSTEP_SMOLLM2" ]; then run ./real_model; fi
    ;;
*)
    sed -n '2,14p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
exit "$first"
