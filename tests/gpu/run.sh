#!/usr/bin/env bash
# Everything that only a GPU can tell, in one command and under five minutes on an H200: build, kernels against the host's,
# losses, the design's open points, predicted beside measured for real models, PyTorch on the same shapes, out of memory,
# exit codes.
#
#   tests/gpu/run.sh                 on the GPU machine: needs nvcc, cmake, ninja, python3; PyTorch and transformers if they are there
#   tests/gpu/run.sh --pack          before that, on a machine with the headers of nlohmann-json and CLI11: copies them to
#                                    build/gpu-headers, to be carried along where the GPU machine lacks them and the internet
#   tests/gpu/run.sh --plan          what would be run; needs no GPU
#
# Results: build/gpu/summary.json, written after each stage. Exit code: 0 all as expected, 1 something is not, 69 no usable GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

HEADERS=build/gpu-headers
OUT=build/gpu
NO_GPU=69

case ${1:-} in
  '' | --pack) ;;
  --plan) exec python3 tests/gpu/check.py --plan ;;
  -h | --help)
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" | sed '/^set -/,$d'
    exit 0
    ;;
  *)
    printf 'tests/gpu/run.sh: there is no option %s; see --help.\n' "$1" >&2
    exit 2
    ;;
esac

if [[ ${1:-} == --pack ]]; then
  mkdir -p "$HEADERS"
  cp -r /usr/include/nlohmann /usr/include/CLI "$HEADERS/"
  echo "Headers are in $HEADERS: carry them with the sources."
  exit 0
fi

stop() {
  printf 'tests/gpu/run.sh: %s\n' "$1" >&2
  exit "$NO_GPU"
}

# Before anything is built: is there a GPU at all?
shopt -s nullglob
devices=(/dev/nvidia[0-9]* /dev/dx[g])
if ((${#devices[@]} == 0)); then stop "there is no NVIDIA GPU on this machine (no /dev/nvidia*), and nothing here can be measured without one."; fi
NVCC=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [[ -z $NVCC ]]; then stop "there is a GPU, but no nvcc on PATH or in /usr/local/cuda/bin: install the CUDA toolkit."; fi
for tool in cmake ninja python3; do
  command -v "$tool" >/dev/null || stop "there is no $tool on PATH."
done

mkdir -p "$OUT"
options=(-DLEDGER_TESTS=OFF -DLEDGER_GPU_CHECK=ON -DLEDGER_CUDA=ON -DLEDGER_CUDA_ARCHITECTURES=native -DCMAKE_BUILD_TYPE=Release)
if [[ -d $HEADERS ]]; then options+=("-DNLOHMANN_DIR=$PWD/$HEADERS" "-DCMAKE_CXX_FLAGS=-isystem $PWD/$HEADERS"); fi
began=$SECONDS
if ! { cmake -S . -B "$OUT/build" -G Ninja "${options[@]}" && cmake --build "$OUT/build"; } >"$OUT/build.log" 2>&1; then
  tail -n 30 "$OUT/build.log" >&2
  printf 'tests/gpu/run.sh: the build failed; all of its output is in %s.\n' "$OUT/build.log" >&2
  exit 1
fi
echo "built in $((SECONDS - began)) s"
exec python3 tests/gpu/check.py --bin "$OUT/build/bin" --out "$OUT" --build-seconds "$((SECONDS - began))"
