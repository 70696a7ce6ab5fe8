#!/usr/bin/env python3
"""The stages of tests/gpu/run.sh behind the build. Every stage is kept in summary.json as soon as it is over, so that a run
that is cut off still tells what it found. `--plan` says what would be done and does nothing."""

import argparse
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
GIB = 1 << 30
NO_GPU = 69
LIMIT_S = 300  # of the whole run, the build included
TORCH_S = 60   # what a comparison with PyTorch may still need
MOST_START_S = 10  # from start to JSON, of a model of 8B parameters
LEAST_MFU = 0.45   # of the dense bf16 peak, on an H100-class card

# Shapes of the checkpoints' config.json files on the Hugging Face hub.
QWEN_05B = {"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
            "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True, "rope_theta": 1000000.0, "rms_norm_eps": 1e-06}
QWEN_15B = {**QWEN_05B, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12}
LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 500000.0, "rms_norm_eps": 1e-05}
RUNS = {
    "0.5b-full": (QWEN_05B, {"seq": 2048}),
    "1.5b-full": (QWEN_15B, {"seq": 2048, "checkpointing": "full"}),
    "0.5b-native": (QWEN_05B, {"seq": 2048, "stack": "native"}),
    "0.5b-native-cudnn": (QWEN_05B, {"seq": 2048, "stack": "native", "attention": "cudnn"}),
    "1.5b-native-4k": (QWEN_15B, {"seq": 4096, "stack": "native", "attention": "cudnn"}),
    "8b-lora": (LLAMA_8B, {"seq": 2048, "method": "lora", "rank": 16, "checkpointing": "full"}),
}


class Summary:
    def __init__(self, path, build_seconds):
        self.path = path
        self.began = time.monotonic() - build_seconds
        self.document = {"build_s": build_seconds, "stages": {}, "assertions": []}
        self.write()

    def write(self):
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.document, indent=1) + "\n")
        temporary.replace(self.path)

    def stage(self, name, result, began):
        self.document["stages"][name] = {"seconds": round(time.monotonic() - began, 1), **result}
        self.write()

    def expect(self, name, holds, seen):
        """One open question of the design, or one promise; `seen` is what was found."""
        self.document["assertions"].append({"name": name, "ok": bool(holds), "seen": seen})
        self.write()
        print(f"{'ok  ' if holds else 'FAIL'} {name}: {seen}", flush=True)

    def seconds(self):
        return time.monotonic() - self.began

    def good(self):
        return all(entry["ok"] for entry in self.document["assertions"])


def run(command, timeout):
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout)
        return done.returncode, done.stdout, done.stderr.strip()
    except subprocess.TimeoutExpired:
        return 124, "", f"no end after {timeout} s"


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def flags_of(recipe):
    return [word for key, value in recipe.items() for word in ("--" + key.replace("_", "-"), str(value))]


class Check:
    def __init__(self, bin_folder, out, summary):
        self.bin, self.out, self.summary = bin_folder, out, summary

    def probe(self, config, recipe, *words, timeout=120):
        model = self.out / "config.json"
        model.write_text(json.dumps(config))
        code, out, err = run([self.bin / "probe", "--model", model, *flags_of(recipe), "--json", "-", *words], timeout)
        return code, parsed(out), err

    def kernels(self):
        for what, number in (("ops", 1), ("ops", 20240229), ("steps", 10)):
            began = time.monotonic()
            code, out, err = run([self.bin / "probe_gpu_check", what, number], 150)
            result = parsed(out) or {}
            self.summary.stage(f"{what}-{number}", {"code": code, "result": result, "stderr": err[-2000:]}, began)
            seen = f"{result.get('cases')} cases, {result.get('failed')} differ" if what == "ops" else err[-300:] or "equal"
            self.summary.expect(f"CUDA {what} agree with the host ({number})", code == 0, seen)
            if what == "ops":
                self.loading(number, result)

    def loading(self, number, result):
        """Open point: kernels are loaded when they are first launched, and take memory then."""
        once, again = result.get("loaded_bytes"), result.get("loaded_again_bytes")
        self.summary.expect(f"kernels take at most 512 MiB when they are first launched ({number})", once is not None and once <= 512 * MIB, once)
        self.summary.expect(f"kernels take nothing when they are launched again ({number})", again == 0, again)
        self.summary.expect(f"tensor cores compute attention and experts' products ({number})", result.get("on_tensor_cores"), result.get("on_tensor_cores"))

    def points(self):
        """Open points that need a program of their own: tests/gpu/open_points.cc."""
        began = time.monotonic()
        code, out, err = run([self.bin / "probe_gpu_check", "points", 1], 90)
        result = parsed(out)
        self.summary.stage("points", {"code": code, "result": result, "stderr": err[-2000:]}, began)
        self.summary.expect("the open points are measured", result is not None, err[-300:] or "ok")
        for point in (result or {}).get("points", []):
            self.summary.expect(point["name"], point["ok"], point.get("why") or f"{point['seen']:.6g} {point['unit']}")

    def measure(self, name, config, recipe):
        began = time.monotonic()
        code, measured, err = self.probe(config, recipe, "--steps", "4", "--warmup", "2", "--allow-busy")
        took = time.monotonic() - began
        self.summary.stage(name, {"code": code, "measured": measured, "stderr": err[-2000:]}, began)
        self.summary.expect(f"{name} runs", code == 0 and measured is not None, err or "ok")
        if code != 0 or measured is None:
            return
        (self.out / f"{name}.json").write_text(json.dumps(measured))
        predicted = measured["prediction"]["peaks"]
        for key in ("allocated_bytes", "reserved_bytes"):
            both = (predicted[key], measured["peaks"][key])
            self.summary.expect(f"{name}: {key} as predicted", both[0] == both[1], both)
        self.summary.expect(f"{name}: every address as predicted", measured["prediction"]["events_identical"], True)
        self.device_memory(name, measured)
        losses = [step["loss"] for step in measured["steps"]]
        self.summary.expect(f"{name}: losses are numbers and fall", None not in losses and losses[-1] < losses[0], losses)
        if recipe.get("attention") == "cudnn":  # or a sentence about the library that is missing
            self.summary.expect(f"{name}: cuDNN computes attention", not err or "was not found" in err, err or "ok")
        self.summary.expect(f"{name}: speed is told", measured["speed"].get("tflops"), measured["speed"])
        if config is LLAMA_8B:
            self.summary.expect(f"{name}: from start to JSON in {MOST_START_S} s", took <= MOST_START_S, round(took, 1))
        if recipe["seq"] >= 4096:
            mfu = measured["speed"].get("mfu")  # none for a card whose peak is not in the table
            self.summary.expect(f"{name}: MFU of {LEAST_MFU} or more", mfu is None or mfu >= LEAST_MFU, mfu)

    def device_memory(self, name, measured):
        """Open points: what the driver takes for segments, context, libraries and lazily loaded kernels."""
        memory = measured["device_memory"]
        self.summary.expect(f"{name}: segments cost their size, all is explained within 16 MiB",
                            memory["unexplained_bytes"] is not None and abs(memory["unexplained_bytes"]) <= 16 * MIB, memory)
        context = memory["context_bytes"]
        self.summary.expect(f"{name}: the context takes 100 MiB to 1 GiB", context is not None and 100 * MIB <= context <= GIB, context)
        grown = memory["grown_bytes"]
        self.summary.expect(f"{name}: libraries take at most 512 MiB of their own", grown is not None and grown <= 512 * MIB, grown)

    def fusing(self):
        """What the operators of our own buy, beside PyTorch's on the same model."""
        files = {name: self.out / f"{name}.json" for name in ("0.5b-full", "0.5b-native", "0.5b-native-cudnn")}
        runs = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
        told = {name: (run["peaks"]["allocated_bytes"], run["steps"][-1]["ms"]) for name, run in runs.items()}
        if "0.5b-full" in told and "0.5b-native" in told:
            self.summary.expect("stack native takes less memory than hf", told["0.5b-native"][0] < told["0.5b-full"][0], told)

    def torch(self, name):
        if self.summary.seconds() + TORCH_S > LIMIT_S:
            print(f"skip torch {name}: no time left", flush=True)
            return
        began = time.monotonic()
        code, out, err = run([sys.executable, ROOT / "tests/gpu/torch_shapes.py", self.out / f"{name}.json"], 100)
        result = parsed(out)
        self.summary.stage(f"torch-{name}", {"code": code, "result": result, "stderr": err[-2000:]}, began)
        if code == 77:
            print(f"skip torch {name}: {err.splitlines()[-1] if err else 'no torch'}", flush=True)
            return
        self.summary.expect(f"{name}: PyTorch ran the same shape", result is not None, err[-300:] or "ok")
        if result is None:
            return
        measured = json.loads((self.out / f"{name}.json").read_text())
        ours, theirs = measured["peaks"]["allocated_bytes"], result["allocated_bytes"]
        self.summary.expect(f"{name}: allocated within 2 % of PyTorch's", abs(ours - theirs) <= 0.02 * theirs, (ours, theirs))
        # The same operations in another time.
        step_ms, speed = measured["steps"][-1]["ms"], measured["speed"]
        slower = step_ms / result["step_ms"]
        told = [f"{key} {speed[key]:.3g} here, {speed[key] * slower:.3g} with PyTorch" for key in ("tflops", "mfu") if speed.get(key)]
        print(f"     {name}: step {step_ms:.0f} ms here, {result['step_ms']:.0f} ms with PyTorch; {'; '.join(told)}", flush=True)

    def failures(self):
        began = time.monotonic()
        code, measured, err = self.probe(LLAMA_8B, {"seq": 2048, "method": "lora"}, "--mem-limit", "12GiB", "--allow-busy")
        error = (measured or {}).get("error") or {}
        complete = all(key in error for key in ("name", "layer", "phase", "requested_bytes", "short_by_bytes"))
        self.summary.expect("--mem-limit: out of memory is exit 3 with complete JSON", code == 3 and complete, (code, error))
        code, measured, err = self.probe(LLAMA_8B, {"seq": 32768, "batch": 16}, "--steps", "1", "--allow-busy")
        status = (measured or {}).get("status")
        self.summary.expect("cudaMalloc's refusal is exit 3", code == 3 and status == "oom", (code, status, err[-300:]))
        code, measured, err = self.probe(QWEN_05B, {"seq": 2048}, "--steps", "64", "--timeout", "3", "--allow-busy")
        self.summary.expect("--timeout is exit 5 with JSON", code == 5 and (measured or {}).get("status") == "timeout", (code, err))
        code, measured, err = self.probe(QWEN_05B, {"seq": 2048}, "--steps", "64", "--budget", "2s", "--allow-busy")
        done = len((measured or {}).get("steps", []))
        self.summary.expect("--budget is exit 5 with the steps that were done", code == 5 and 1 <= done < 64, (code, done, err))
        code, _, err = self.probe(QWEN_05B, {"allocator": "torch_expandable"}, "--allow-busy")
        self.summary.expect("what cannot run here is exit 2", code == 2, (code, err))
        self.summary.stage("failures", {}, began)


def plan():
    print("A tiny model; every operator twice with random shapes and ten steps of tiny models, CUDA against the host.")
    print("Open points: segments, NVML, memory pools, cuBLASLt, attention of cuDNN's and our own, experts' products.")
    for name, (_, recipe) in RUNS.items():
        print(f"{name}: predicted beside measured; probe {' '.join(flags_of(recipe))}")
    print(f"Ends that are no success: out of memory, --timeout, --budget. Then PyTorch on the same shapes, while {LIMIT_S} s are not over.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--build-seconds", type=int, default=0)
    parser.add_argument("--plan", action="store_true")
    options = parser.parse_args()
    if options.plan:
        plan()
        return 0
    summary = Summary(options.out / "summary.json", options.build_seconds)
    check = Check(options.bin, options.out, summary)
    tiny = json.loads((ROOT / "docs/examples/tiny-llama.json").read_text())
    code, _, err = check.probe(tiny, {"seq": 64}, "--steps", "1", "--allow-busy")
    if code == NO_GPU:
        print(f"tests/gpu/run.sh: {err}", file=sys.stderr)
        return NO_GPU
    summary.expect("a tiny model runs", code == 0, err or "ok")
    check.kernels()
    check.points()
    for name, (config, recipe) in RUNS.items():
        check.measure(name, config, recipe)
    check.fusing()
    check.failures()
    for name, (_, recipe) in RUNS.items():
        if "stack" not in recipe and (options.out / f"{name}.json").exists():
            check.torch(name)
    summary.expect(f"all of it took at most {LIMIT_S} s", summary.seconds() <= LIMIT_S, round(summary.seconds()))
    failed = sum(not entry["ok"] for entry in summary.document["assertions"])
    print(f"{len(summary.document['assertions']) - failed} passed, {failed} failed; {summary.path}")
    return 0 if summary.good() else 1


if __name__ == "__main__":
    sys.exit(main())
