#!/usr/bin/env python3
"""check.py without a GPU: the emulated device's measured files stand in for the probe's, so that every stage of the script is
run before a GPU is at hand. What only a GPU can give is expected to fail, by name, and nothing else.

    tests/gpu/rehearsal.py FOLDER      # with emulated_run, emulated_probe and emulated_check, as scripts/build leaves them in build/bin
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build/bin"
NCCL = FOLDER.parent / "tests/nccl"

# Of several GPUs, one of each kind: gpu_program_test.cc has the others, on the same emulated GPUs.
PLANS = "ddp,tp,pp-interleaved,cp-gathered,ep"

# Of the emulated device: a context of 64 MiB, no host to compare with, and one tiny model whatever is asked for.
NEVER_HERE = ("the context takes", "stack native takes less memory")

# Ranks are real: the programme itself on emulated GPUs, with a library in NCCL's place, and a smaller model where none fits.
PROBE = """#!/usr/bin/env python3
import os, subprocess, sys
words = " ".join(sys.argv[1:])
if not os.environ.get("CUDA_VISIBLE_DEVICES"):
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
if "WORLD_SIZE" in os.environ:
    if "--steps 64" in words:
        for word, value in (("--model", "{tiny}"), ("--seq", "256"), ("--batch", "1")):
            sys.argv[sys.argv.index(word) + 1] = value
    os.execv("{folder}/emulated_probe", ["probe", *sys.argv[1:]])
if "course" in words:
    print("probe: --stack course is arithmetic, not a program: it cannot run", file=sys.stderr)
    sys.exit(2)
if "--attention" in words:
    print("probe: libcudnn.so.9 was not found", file=sys.stderr)
ways = (("--mem-limit", "oom", 3), ("--batch 16", "oom", 3), ("--timeout", "timeout", 5), ("--budget", "ok", 5), ("", "ok", 0))
kind, code = next((kind, code) for word, kind, code in ways if word in words)
subprocess.run(["{emulated}", kind], check=True)
sys.exit(code)
"""
GPU_CHECK = """#!/usr/bin/env python3
import json, os, sys
what = sys.argv[1]
if what in ("ranks", "gpus"):
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.execv("{folder}/emulated_check", ["probe_gpu_check", *sys.argv[1:]])
if what == "points":
    points = [{{"name": "a number", "ok": True, "seen": 1.5, "unit": "ms"}}, {{"name": "no library", "ok": {good}, "why": "it is not there"}}]
    print(json.dumps({{"ok": {good}, "points": points}}))
else:
    print(json.dumps({{"ok": {good}, "cases": 3, "failed": 0, "on_tensor_cores": 5, "loaded_bytes": 1 << 20, "loaded_again_bytes": 0}}))
sys.exit(0 if {good} else 1)
"""
BROKEN = """#!/usr/bin/env python3
import sys
sys.exit("probe: something broke")
"""


def rehearse(name, programs, gpus=1, stand_in=""):
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        for program, text in programs.items():
            (place / program).write_text(text)
            (place / program).chmod(0o755)
        words = [sys.executable, ROOT / "tests/gpu/check.py", "--bin", place, "--out", place, "--build-seconds", "20", "--plans", PLANS, "--kill-after", "2"]
        variables = {"CUDA_VISIBLE_DEVICES": "", "EMULATED_GPUS": str(gpus), "STAND_IN_NCCL": stand_in, "PROBE_LIB_PATH": str(NCCL)}
        run = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **variables})
        if "Traceback" in run.stderr:
            sys.exit(f"{name}: {run.stderr}")
        summary = json.loads((place / "summary.json").read_text())
        print(f"{name}: {run.stdout.splitlines()[-1].split(';')[0]}, ends with {run.returncode}")
        return run.returncode, summary["assertions"]


def main():
    probe = PROBE.format(folder=FOLDER, emulated=FOLDER / "emulated_run", tiny=ROOT / "docs/examples/tiny-llama.json")
    programs = {"probe": probe, "probe_gpu_check": GPU_CHECK.format(folder=FOLDER, good=True)}
    code, assertions = rehearse("all as expected", programs, gpus=2)
    surprises = [entry for entry in assertions if not entry["ok"] and not any(text in entry["name"] for text in NEVER_HERE)]
    if surprises or code != 1 or len(assertions) < 95:
        sys.exit(f"{len(assertions)} assertions, ended with {code}: " + json.dumps(surprises, indent=1))
    programs["probe_gpu_check"] = GPU_CHECK.format(folder=FOLDER, good=False)
    code, assertions = rehearse("kernels differ, and NCCL fails", programs, stand_in="fail=run")
    failed = {entry["name"] for entry in assertions if not entry["ok"]}
    if not {"CUDA ops agree with the host (1)", "no library", "NCCL alone: every collective is the host's"} <= failed:
        sys.exit(f"what differs was not said: {failed}")
    code, assertions = rehearse("nothing works", {"probe": BROKEN, "probe_gpu_check": BROKEN})
    if code != 1 or any(entry["ok"] for entry in assertions if "all of it took" not in entry["name"]):
        sys.exit("a probe that ends with 1 passed: " + json.dumps([entry for entry in assertions if entry["ok"]], indent=1))


if __name__ == "__main__":
    main()
