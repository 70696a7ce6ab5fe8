#!/usr/bin/env python3
"""The stages of tests/gpu/run.sh behind the build. Every stage is kept in summary.json as soon as it is over, so that a run
that is cut off still tells what it found. `--plan` says what would be done and does nothing."""

import argparse
import json
import os
import pathlib
import signal
import socket
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
    "0.5b-expandable": (QWEN_05B, {"seq": 2048, "allocator": "torch_expandable"}),
    "8b-lora": (LLAMA_8B, {"seq": 2048, "method": "lora", "rank": 16, "checkpointing": "full"}),
}


# Of several GPUs: tiny models whose losses on the host are at hand in a second.
TINY = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 4, "vocab_size": 512}
EXPERTS = {**TINY, "model_type": "mixtral", "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
MEGATRON = {"stack": "megatron", "precision": "megatron-bf16", "seq": 64, "micro-batches": 4}
PLANS = {
    "ddp": (TINY, {"seq": 64, "dp": 2}),
    "fsdp2": (TINY, {"seq": 64, "dp": 2, "fsdp": 2}),
    "zero2": (TINY, {"seq": 64, "dp": 2, "zero": 2}),
    "tp": (TINY, {"stack": "torchtitan", "seq": 64, "tp": 2, "sequence-parallel": "true"}),
    "pp": (TINY, {**MEGATRON, "pp": 2}),
    "pp-interleaved": (TINY, {**MEGATRON, "pp": 2, "pipeline-schedule": "interleaved"}),
    "cp": (TINY, {**MEGATRON, "micro-batches": 1, "cp": 2}),
    "cp-gathered": (TINY, {**MEGATRON, "micro-batches": 1, "cp": 2, "cp-comm-type": "all_gather", "attention": "flash"}),
    "cp-torchtitan": (TINY, {"stack": "torchtitan", "seq": 64, "cp": 2, "fsdp": 2, "units": "titan"}),
    "ep": (EXPERTS, {**MEGATRON, "micro-batches": 1, "dp": 2, "ep": 2}),
    "fsdp2-offloaded": (TINY, {"seq": 64, "dp": 2, "fsdp": 2, "offload": "params"}),
    "zero3-offloaded": (TINY, {"seq": 64, "dp": 2, "zero": 3, "offload": "params"}),
}
SEVERAL_S = 150  # of the run, by which the stages of several GPUs begin no other plan
RANK_LOST = 7


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


def ranks(commands, variables=None, timeout=60, kill=None):
    """A process for each command, as a launcher starts them; (code, out, err) of each. `kill`: a rank, and seconds until it ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = str(len(commands))
    common = {**os.environ, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "localhost", "PROBE_MASTER_PORT": port}
    started = []
    for rank, command in enumerate(commands):
        own = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank), **(variables or {})}
        started.append(subprocess.Popen([str(word) for word in command], env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    if kill:
        time.sleep(kill[1])
        started[kill[0]].send_signal(signal.SIGKILL)
    ended = []
    for process in started:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"no end after {timeout} s"
        ended.append((process.returncode, out, err.strip()))
    return ended


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

    def gpus(self):
        code, out, _ = run([self.bin / "probe_gpu_check", "gpus", 1], 60)
        return (parsed(out) or {}).get("gpus", 1) if code == 0 else 1

    def nccl(self, count):
        """Open points: whether communicators are made and used without blocking, what they compute, what they take."""
        began = time.monotonic()
        ended = ranks([[self.bin / "probe_gpu_check", "ranks", 1]] * count) if count > 1 else [run([self.bin / "probe_gpu_check", "ranks", 1], 60)]
        results = [parsed(out) or {} for _, out, _ in ended]
        self.summary.stage(f"nccl-{count}", {"codes": [code for code, _, _ in ended], "results": results}, began)
        name = f"NCCL among {count}" if count > 1 else "NCCL alone"
        self.summary.expect(f"{name}: every collective is the host's", all(code == 0 for code, _, _ in ended), [err[-300:] or "equal" for _, _, err in ended])
        for rank, result in enumerate(results):
            took = [result.get(key) for key in ("init_bytes", "connect_bytes")]
            self.summary.expect(f"{name}, rank {rank}: takes at most 4 GiB of the GPU", None not in took and sum(took) <= 4 * GIB, took)
            again = result.get("again_bytes")
            self.summary.expect(f"{name}, rank {rank}: takes nothing the second time", again is not None and again <= 0, again)
            told = result.get("stats_bytes")  # not before 2.30
            if told is not None:
                self.summary.expect(f"{name}, rank {rank}: its own account within 64 MiB", abs(sum(took) - told) <= 64 * MIB, (took, told))

    def several(self, name, config, recipe):
        """The same ranks on GPUs and on the host."""
        if self.summary.seconds() > SEVERAL_S:
            print(f"skip two ranks, {name}: no time left", flush=True)
            return
        began = time.monotonic()
        model = self.out / "config.json"
        model.write_text(json.dumps(config))
        words = [self.bin / "probe", "--model", model, *flags_of(recipe), "--steps", "4", "--json", "-", "--quiet"]
        host = ranks([[*words, "--device", "host"]] * 2)
        gpus = ranks([[*words, "--device", "cuda", "--allow-busy"]] * 2)
        measured, expected = parsed(gpus[0][1]), parsed(host[0][1])
        self.summary.stage(f"ranks-{name}", {"codes": [end[0] for end in gpus], "measured": measured, "stderr": [end[2][-1000:] for end in gpus]}, began)
        self.summary.expect(f"two ranks, {name}: run", all(end[0] == 0 for end in gpus + host) and measured and expected, [end[2][-300:] or "ok" for end in gpus])
        if not measured or not expected:
            return
        both = [([step["loss"] for step in run["steps"]]) for run in (measured, expected)]
        close = None not in both[0] and all(abs(a - b) <= 2e-3 * b * (i + 1) for i, (a, b) in enumerate(zip(*both)))
        self.summary.expect(f"two ranks, {name}: losses are the host's", close and len(both[0]) == 4, both)
        self.summary.expect(f"two ranks, {name}: every address as predicted", all(row["events_identical"] for row in measured["ranks"]), True)
        memory = measured["device_memory"]
        rest = memory["unexplained_bytes"]
        self.summary.expect(f"two ranks, {name}: NCCL's memory is told apart", memory["nccl"] and rest is not None and abs(rest) <= 16 * MIB, memory)

    def lost(self, seconds):
        """Open points: a rank that is killed ends the other, and two on one GPU are refused."""
        model = self.out / "config.json"
        model.write_text(json.dumps(QWEN_05B))
        words = [self.bin / "probe", "--model", model, "--seq", "2048", "--batch", "4", "--dp", "2", "--steps", "64", "--allow-busy", "--quiet"]
        began = time.monotonic()
        ended = ranks([words] * 2, kill=(1, seconds), timeout=30)
        took = time.monotonic() - began
        said = "rank 1 ended before the run did" in ended[0][2]
        self.summary.expect("a rank that is killed ends the other within 15 s", ended[0][0] == RANK_LOST and said and took <= seconds + 15, (ended[0][0], ended[0][2][-300:], round(took)))
        self.summary.stage("ranks-lost", {}, began)

    def one_gpu_for_two(self):
        model = self.out / "config.json"
        model.write_text(json.dumps(TINY))
        words = [self.bin / "probe", "--model", model, "--seq", "64", "--dp", "2", "--allow-busy", "--quiet", "--device", "cuda"]
        ended = ranks([words] * 2, {"CUDA_VISIBLE_DEVICES": (os.environ.get("CUDA_VISIBLE_DEVICES") or "0").split(",")[0]})
        fine = all(code == 2 and "are on the same GPU" in err for code, _, err in ended)
        self.summary.expect("two ranks on one GPU are refused in words", fine, [(code, err[-300:]) for code, _, err in ended])

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
        code, _, err = self.probe(QWEN_05B, {"stack": "course"}, "--allow-busy")
        self.summary.expect("what cannot run here is exit 2", code == 2, (code, err))
        self.summary.stage("failures", {}, began)


def plan():
    print("A tiny model; every operator twice with random shapes and ten steps of tiny models, CUDA against the host.")
    print("Open points: segments, NVML, memory pools, cuBLASLt, attention of cuDNN's and our own, experts' products.")
    for name, (_, recipe) in RUNS.items():
        print(f"{name}: predicted beside measured; probe {' '.join(flags_of(recipe))}")
    print("NCCL: one rank alone; on a machine of several GPUs two ranks, collectives against the host's and tiny models with")
    print(f"{', '.join(PLANS)}; a rank that is killed; two on one GPU.")
    print(f"Ends that are no success: out of memory, --timeout, --budget. Then PyTorch on the same shapes, while {LIMIT_S} s are not over.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--build-seconds", type=int, default=0)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--kill-after", type=float, default=10)  # seconds, within a run
    parser.add_argument("--plans", default=",".join(PLANS))  # of several GPUs
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
    several = check.gpus() > 1
    check.nccl(1)
    check.one_gpu_for_two()
    if several:
        check.nccl(2)
        for name in options.plans.split(","):
            check.several(name, *PLANS[name])
        check.lost(options.kill_after)
    else:
        print(f"skip ranks on several GPUs ({', '.join(PLANS)}): there is one GPU here", flush=True)
    for name, (config, recipe) in RUNS.items():
        check.measure(name, config, recipe)
    check.fusing()
    check.failures()
    for name, (_, recipe) in RUNS.items():
        if "stack" not in recipe and "allocator" not in recipe and (options.out / f"{name}.json").exists():
            check.torch(name)
    summary.expect(f"all of it took at most {LIMIT_S} s", summary.seconds() <= LIMIT_S, round(summary.seconds()))
    failed = sum(not entry["ok"] for entry in summary.document["assertions"])
    print(f"{len(summary.document['assertions']) - failed} passed, {failed} failed; {summary.path}")
    return 0 if summary.good() else 1


if __name__ == "__main__":
    sys.exit(main())
