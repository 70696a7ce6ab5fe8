# common.sh - what build, run and test share: finding or installing tools, and the build steps. Sourced, not run.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT" || exit
LOGS=$ROOT/build/logs
MEASURED=$ROOT/build/measured
NODE_LEAST=18

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  if (($# > 0)); then printf '       %s\n' "$@" >&2; fi
  exit 1
}

# have PROOF: a command on PATH, an existing file (/usr/...), or a Python module (py:name).
have() {
  case $1 in
    /*) [[ -e $1 ]] ;;
    py:*) "$(python_for "${1#py:}")" -c "import ${1#py:}" 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# The first python3 that can import a module; Debian's own carries the modules that apt installs.
python_for() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c "import $1" 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  echo python3
}

# ensure PACKAGE=PROOF...: installs with apt the packages whose proof is missing; says nothing when all are there.
ensure() {
  local pair missing=()
  for pair in "$@"; do
    have "${pair#*=}" || missing+=("${pair%%=*}")
  done
  if ((${#missing[@]} == 0)); then return; fi

  command -v apt-get >/dev/null ||
    die "missing: ${missing[*]}" "These are Debian package names; this system has no apt-get. Install their like and run this again."
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "missing: ${missing[*]}" "Run as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "Installing ${missing[*]}"
  mkdir -p "$LOGS"
  if [[ -z ${APT_UPDATED:-} ]] && ! "${as_root[@]}" apt-get update >"$LOGS/apt.log" 2>&1; then
    tail -n 5 "$LOGS/apt.log" >&2
    die "apt-get update failed; is the network up and a Debian mirror configured?" "Needed: ${missing[*]}"
  fi
  export APT_UPDATED=1 # once a run, of the scripts that it calls, too
  if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >>"$LOGS/apt.log" 2>&1; then
    tail -n 15 "$LOGS/apt.log" >&2
    die "apt-get could not install ${missing[*]}" "The whole output is in build/logs/apt.log"
  fi
  for pair in "$@"; do
    have "${pair#*=}" || die "${pair%%=*} was installed, but ${pair#*=} is still not found"
  done
}

BUILD_TOOLS=('g++=g++' cmake=cmake ninja-build=ninja nlohmann-json3-dev=/usr/include/nlohmann/json.hpp
  libcli11-dev=/usr/include/CLI/CLI.hpp libgtest-dev=/usr/include/gtest/gtest.h)
WEB_TOOLS=(nodejs=node npm=npm)
if [[ -z ${EMSDK:-} ]]; then WEB_TOOLS+=(emscripten=emcc); fi
TEST_TOOLS=(libbenchmark-dev=/usr/include/benchmark/benchmark.h clang-format=clang-format clang-tidy=clang-tidy clang=clang++
  chromium-headless-shell=chromium-headless-shell mkdocs=mkdocs fonts-noto-cjk=/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc
  python3-jsonschema=py:jsonschema)

need_build_tools() { ensure "${BUILD_TOOLS[@]}"; }

need_web_tools() {
  ensure "${WEB_TOOLS[@]}"
  local major
  major=$(node -p 'process.versions.node.split(".")[0]')
  ((major >= NODE_LEAST)) || die "node $(node --version) is too old" "Version $NODE_LEAST or later is needed; the one found is $(command -v node)."
}

# For scripts/test: all of them in one go.
need_all_tools() { ensure "${BUILD_TOOLS[@]}" "${WEB_TOOLS[@]}" "${TEST_TOOLS[@]}"; }

# quietly NAME COMMAND...: output goes to build/logs/NAME.log and is shown only when the command fails.
quietly() {
  local log=$LOGS/$1.log
  shift
  mkdir -p "$LOGS"
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
}

# configure PRESET FOLDER [OPTION...]: the first time and when the presets changed; the build tool watches the CMake files itself.
configure() {
  if [[ ! -f $2/build.ninja || CMakePresets.json -nt $2/build.ninja ]]; then
    quietly "configure-$1" cmake --preset "$1" "${@:3}"
  fi
}

gpu_here() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]]; } # the latter in WSL

# Optimising the CUDA kernels takes minutes. A first build for the tests does without where no GPU can run them; what is built to be
# used, here or elsewhere, is optimised from then on.
build_native() {
  local quick=OFF
  say "Building the native probe (build/bin/probe)"
  if [[ $1 == all ]] && ! gpu_here; then quick=ON; fi
  configure native-release build -DLEDGER_CUDA_QUICK=$quick
  if [[ $1 == probe ]] && grep -q '^LEDGER_CUDA_QUICK:BOOL=ON' build/CMakeCache.txt; then
    quietly configure-native-release cmake --preset native-release -DLEDGER_CUDA_QUICK=OFF
  fi
  cmake --build --preset native-release --target "$1"
}

build_wasm() {
  local preset=wasm-release
  if [[ -n ${EMSDK:-} ]]; then preset=wasm-emsdk; fi
  say "Building the WebAssembly core (build/wasm/ledger.wasm)"
  configure $preset build/wasm
  cmake --build --preset $preset
}

# install_packages FOLDER: its npm packages, unless those of its lock file are there.
install_packages() {
  local stamp=$1/node_modules/.installed now
  now=$(sha256sum <"$1/package-lock.json")
  if [[ -f $stamp && $(<"$stamp") == "$now" ]]; then return; fi
  say "Installing the npm packages of $1"
  local log=npm-${1//\//-}
  if ! quietly "$log" npm --prefix "$1" ci --no-audit --no-fund; then
    die "npm ci failed in $1/" "Is the network up, or does npm need a proxy or another registry? See build/logs/$log.log"
  fi
  echo "$now" >"$stamp"
}

install_web_packages() { install_packages web; }

build_site() {
  say "Building the page (build/site)"
  mkdir -p "$MEASURED"
  node web/build.mjs --measured "$MEASURED"
}

# build_all TARGET: `probe`, or `all` for the tests too.
build_all() {
  need_build_tools
  need_web_tools
  mkdir -p "$LOGS"
  # Linking the WebAssembly core keeps one core busy for a minute; compiling the native one fills the others.
  build_wasm >"$LOGS/wasm.log" 2>&1 &
  local wasm=$! status=0
  build_native "$1"
  wait $wasm || status=$?
  cat "$LOGS/wasm.log"
  if ((status != 0)); then die "the WebAssembly core was not built" "What went wrong is listed above, and in build/logs/wasm.log."; fi
  install_web_packages
  build_site
}
