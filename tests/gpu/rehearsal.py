#!/usr/bin/env python3
"""check.py without a GPU: the emulated device's measured files stand in for the probe's, so that every stage of the script is
run before a GPU is at hand. What only a GPU can give is expected to fail, by name, and nothing else.

    tests/gpu/rehearsal.py FOLDER      # with emulated_run, as scripts/build leaves it in build/bin
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Of the emulated device: a context of 64 MiB, no host to compare with, and one tiny model whatever is asked for.
NEVER_HERE = ("the context takes", "stack native takes less memory")

PROBE = """#!/usr/bin/env python3
import subprocess, sys
words = " ".join(sys.argv[1:])
if "torch_expandable" in words:
    print("probe: expandable segments are predicted only", file=sys.stderr)
    sys.exit(2)
if "--attention" in words:
    print("probe: libcudnn.so.9 was not found", file=sys.stderr)
ways = (("--mem-limit", "oom", 3), ("--batch 16", "oom", 3), ("--timeout", "timeout", 5), ("--budget", "ok", 5), ("", "ok", 0))
kind, code = next((kind, code) for word, kind, code in ways if word in words)
subprocess.run(["{emulated}", kind], check=True)
sys.exit(code)
"""
GPU_CHECK = """#!/usr/bin/env python3
import json, sys
what = sys.argv[1]
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


def rehearse(name, programs):
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        for program, text in programs.items():
            (place / program).write_text(text)
            (place / program).chmod(0o755)
        words = [sys.executable, ROOT / "tests/gpu/check.py", "--bin", place, "--out", place, "--build-seconds", "20"]
        run = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        if "Traceback" in run.stderr:
            sys.exit(f"{name}: {run.stderr}")
        summary = json.loads((place / "summary.json").read_text())
        print(f"{name}: {run.stdout.splitlines()[-1].split(';')[0]}, ends with {run.returncode}")
        return run.returncode, summary["assertions"]


def main():
    emulated = (pathlib.Path(sys.argv[1]) / "emulated_run").resolve()
    probe = PROBE.format(emulated=emulated)
    code, assertions = rehearse("all as expected", {"probe": probe, "probe_gpu_check": GPU_CHECK.format(good=True)})
    surprises = [entry for entry in assertions if not entry["ok"] and not any(text in entry["name"] for text in NEVER_HERE)]
    if surprises or code != 1 or len(assertions) < 60:
        sys.exit(f"{len(assertions)} assertions, ended with {code}: " + json.dumps(surprises, indent=1))
    code, assertions = rehearse("kernels differ", {"probe": probe, "probe_gpu_check": GPU_CHECK.format(good=False)})
    failed = {entry["name"] for entry in assertions if not entry["ok"]}
    if not {"CUDA ops agree with the host (1)", "no library"} <= failed:
        sys.exit(f"what differs was not said: {failed}")
    code, assertions = rehearse("nothing works", {"probe": BROKEN, "probe_gpu_check": BROKEN})
    if code != 1 or any(entry["ok"] for entry in assertions if "all of it took" not in entry["name"]):
        sys.exit("a probe that ends with 1 passed: " + json.dumps([entry for entry in assertions if entry["ok"]], indent=1))


if __name__ == "__main__":
    main()
