"""Measures a PyTorch training loop's memory by phase and writes the measured JSON of Memory Ledger. One file, no dependency but torch.

    hook = MemoryHook(model, optimizer, out="measured.json", recipe={"batch": 2, "seq": 2048})
    with hook:
        for batch in batches:
            with hook.phase("forward"):   loss = model(**batch).loss
            with hook.phase("backward"):  loss.backward()
            with hook.phase("optimizer"): optimizer.step()
            with hook.phase("zero_grad"): optimizer.zero_grad()

    trainer = Trainer(..., callbacks=[memory_callback("measured.json")])      # Hugging Face: phases are found by themselves

A step is over when a phase's name comes again. What is written: the allocator's peaks by phase, what parameters, gradients and optimizer
states hold, the model's configuration without names and paths. Never a host, user, path, environment variable or serial number.
Formats: docs/file-formats.md. `timeline=True` adds the allocator's own history (PyTorch 2.1 and later; costs speed)."""

import atexit
import contextlib
import json
import math
import os
import sys
import time

SCHEMA_VERSION = "1.0"
PHASES = ("forward", "backward", "optimizer", "zero_grad")
POINTS = 400  # of a timeline


class Cuda:
    """PyTorch's caching allocator on one device."""

    name = "cuda"

    def __init__(self, torch, device=None):
        self.torch, self.cuda, self.device = torch, torch.cuda, device

    def allocated(self):
        return self.cuda.memory_allocated(self.device)

    def peaks(self):
        return self.cuda.max_memory_allocated(self.device), self.cuda.max_memory_reserved(self.device)

    def reset(self):
        self.cuda.reset_peak_memory_stats(self.device)

    def settle(self):
        self.cuda.synchronize(self.device)

    def stats(self):
        stats = self.cuda.memory_stats(self.device)
        return {"rules": "torch", "segments": int(stats.get("segment.all.current", 0)), "retries": int(stats.get("num_alloc_retries", 0))}

    def environment(self):
        return {"device": "cuda", "gpu": self.cuda.get_device_name(self.device), "os": sys.platform, "torch": str(self.torch.__version__)}

    def device_bytes(self):
        free, total = self.cuda.mem_get_info(self.device)
        return total - free

    def start_history(self):
        self.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")

    def history(self):
        index = self.device if isinstance(self.device, int) else self.cuda.current_device()
        traces = self.cuda.memory._snapshot()["device_traces"]
        self.cuda.memory._record_memory_history(enabled=None)
        return traces[index] if index < len(traces) else []


class Host:
    """A CPU has no allocator to ask: what the walked tensors hold is all that is known."""

    name = "host"

    def __init__(self, torch, holds):
        self.torch, self.holds, self.most = torch, holds, 0

    def allocated(self):
        now = sum(self.holds().values())
        self.most = max(self.most, now)
        return now

    def peaks(self):
        self.allocated()
        return self.most, self.most

    def reset(self):
        self.most = 0

    def settle(self):
        pass

    def stats(self):
        return {"rules": "none", "segments": 0, "retries": 0}

    def environment(self):
        return {"device": "host", "gpu": None, "os": sys.platform, "torch": str(self.torch.__version__)}

    def device_bytes(self):
        return None


class MemoryHook:
    def __init__(self, model, optimizer=None, out=None, recipe=None, device=None, timeline=False, torch=None):
        if torch is None:
            import torch  # here, so that reading this file needs nothing
        self.model, self.optimizer, self.out, self.given = model, _inner(optimizer), out, dict(recipe or {})
        accelerated = torch.cuda.is_available()
        self.memory = Cuda(torch, device) if accelerated else Host(torch, self.holds)
        self.timeline = timeline and accelerated
        self.phases, self.steps, self.order = [], [], []
        self.step, self.seen, self.began, self.loss = 0, {}, None, None
        self.peak, self.error, self.status, self.shape, self.autocast = None, None, "ok", None, None  # autocast: to bf16 or fp16
        self.handles = []

    # ---- phases

    def __enter__(self):
        self._begin("load", self.memory.allocated())
        self._end()
        if self.timeline:
            self.memory.start_history()
        self.handles.append(self.model.register_forward_pre_hook(self._look, with_kwargs=True) if _has_kwargs(self.model)
                            else self.model.register_forward_pre_hook(lambda module, inputs: self._look(module, inputs, {})))
        return self

    def __exit__(self, kind, value, trace):
        if self.began is not None:
            self._end()
        self.detach()
        if kind is not None:
            self.status = "oom" if "OutOfMemory" in kind.__name__ or "out of memory" in str(value) else "error"
            self.error = {"type": kind.__name__, "phase": self.phases[-1]["name"]}
        self._close_step()
        if self.out:
            write(self.out, self.document())
        return False

    def detach(self):
        while self.handles:
            self.handles.pop().remove()

    @contextlib.contextmanager
    def phase(self, name):
        self.enter(name)
        try:
            yield self
        finally:
            self.leave()

    def enter(self, name, new_step=None):
        """The phase that runs ends here; a name that this step had already begins the next step, or its next micro-batch, unless the
        caller knows whether it does."""
        if self.began is not None:
            self._end()
        if self.step == 0 or (self._is_new_step(name) if new_step is None else new_step):
            self._close_step()
            self.step += 1
            self.seen, self.began_step = {}, time.perf_counter()
        self.seen[name] = self.seen.get(name, 0) + 1
        micro = f".{self.seen[name]}" if self.given.get("grad_accum", 1) > 1 and name in ("forward", "backward") else ""
        self._begin(f"step{self.step}{micro}.{name}")

    def leave(self):
        if self.began is not None:
            self._end()

    def running(self):
        """The phase that is under way: forward, backward ..."""
        return self.began[0].rsplit(".", 1)[-1] if self.began else None

    def record_loss(self, loss):
        self.loss = float(loss)

    def _is_new_step(self, name):
        times = self.given.get("grad_accum", 1) if name in ("forward", "backward") else 1
        return self.seen.get(name, 0) >= times

    def _close_step(self):
        if self.step > len(self.steps):
            loss = self.loss if self.loss is not None and math.isfinite(self.loss) else None
            self.steps.append({"ms": (time.perf_counter() - self.began_step) * 1e3, "loss": loss})
            self.loss = None

    def _begin(self, name, start=None):
        self.memory.settle()
        self.memory.reset()
        self.began = (name, time.perf_counter(), self.memory.allocated() if start is None else start)

    def _end(self):
        self.memory.settle()
        name, since, start = self.began
        allocated, reserved = self.memory.peaks()
        end = self.memory.allocated()
        self.phases.append({"name": name, "start_bytes": start, "peak_bytes": None, "end_bytes": end, "allocated_peak_bytes": allocated,
                            "reserved_peak_bytes": reserved, "op": "", "ms": (time.perf_counter() - since) * 1e3})
        # What is held is walked where it can be: at the end of the phase, which for backward and optimizer is what the peak held too.
        if self.peak is None or allocated > self.peak["allocated_bytes"]:
            self.peak = {"phase": name, "allocated_bytes": allocated, "reserved_bytes": reserved, "categories": self.holds()}
        self.began = None

    # ---- what is held

    def holds(self):
        """Bytes by category on the measured device, each storage once."""
        seen, held = set(), {"weights": 0, "buffers": 0, "gradients": 0, "optimizer_states": 0}

        def add(category, tensor):
            if tensor is None or not hasattr(tensor, "element_size") or self._elsewhere(tensor):
                return
            size, key = _storage(tensor)
            if key not in seen:
                seen.add(key)
                held[category] += size

        for parameter in self.model.parameters():
            add("weights", parameter)
            add("gradients", parameter.grad)
        for buffer in self.model.buffers():
            add("buffers", buffer)
        for state in getattr(self.optimizer, "state", {}).values():
            for value in state.values():
                add("optimizer_states", value)
        return {category: size for category, size in held.items() if size}

    def _elsewhere(self, tensor):
        return isinstance(getattr(self, "memory", None), Cuda) and tensor.device.type != "cuda"

    # ---- the run

    def _look(self, module, inputs, keywords):
        tensor = keywords.get("input_ids", inputs[0] if inputs else None)
        if not getattr(module, "training", True):
            return  # an evaluation's batches have a size of their own
        if hasattr(tensor, "shape") and self.shape is None:
            self.shape = [int(extent) for extent in tensor.shape]
        torch = self.memory.torch
        if self.autocast is None and torch.is_autocast_enabled():
            self.autocast = "fp16" if "float16" == str(torch.get_autocast_gpu_dtype()).replace("torch.", "") else "bf16"

    def recipe(self):
        """What can be seen of the run, in the recipe's words; what the caller said counts more."""
        seen = {**_method(self.model), **_optimizer(self.optimizer)}
        dtypes = {str(p.dtype).replace("torch.", "") for p in self.model.parameters() if p.is_floating_point()}
        if dtypes == {"float32"}:
            seen["precision"] = f"amp-{self.autocast}" if self.autocast else "fp32"
        elif "bfloat16" in dtypes:
            seen["precision"] = "bf16"
            seen["autocast"] = self.autocast is not None
        if self.shape:
            seen["batch"] = self.shape[0]
            if len(self.shape) > 1 and getattr(self.model, "config", None) is not None:
                seen["seq"] = self.shape[1]
        if getattr(self.model, "is_gradient_checkpointing", False):
            seen["checkpointing"] = "full"
        attention = getattr(getattr(self.model, "config", None), "_attn_implementation", None)
        if attention in ("eager", "sdpa", "flash_attention_2"):
            seen["attention"] = {"flash_attention_2": "flash"}.get(attention, attention)
        return {**seen, **self.given}

    def document(self):
        peak = self.peak or {"phase": "load", "allocated_bytes": 0, "reserved_bytes": 0, "categories": {}}
        reserved = max([phase["reserved_peak_bytes"] for phase in self.phases] or [0])
        parameters = list(self.model.parameters())
        document = {
            "schema_version": SCHEMA_VERSION, "kind": "hook", "tool": {"name": "torch_hook", "version": "0.1.0", "backend": self.memory.name},
            "status": self.status, "environment": self.memory.environment(),
            "model": {"family": str(getattr(getattr(self.model, "config", None), "model_type", "plain")), "params": sum(p.numel() for p in parameters),
                      "trainable": sum(p.numel() for p in parameters if p.requires_grad), "config": _config(self.model)},
            "recipe": self.recipe(), "options": {"steps": max(1, self.step), "memory_limit_bytes": None}, "allocator": self.memory.stats(),
            "peaks": {"tensor_bytes": None, "workspace_bytes": None, "allocated_bytes": peak["allocated_bytes"], "reserved_bytes": reserved,
                      "device_bytes": self.memory.device_bytes(), "phase": peak["phase"], "op": ""},
            "phases": self.phases,
            "at_peak": {"phase": peak["phase"], "allocated_bytes": peak["allocated_bytes"], "categories": peak["categories"]},
            "steps": self.steps, "not_measured": ["tensor_bytes", "workspace_bytes", "activations"], "error": self.error}
        if self.timeline:
            document["timeline"] = timeline(self.memory.history())
        return document


def timeline(entries, points=POINTS):
    """The allocator's history as allocated bytes by event, thinned to `points` without losing the highest."""
    allocated, curve = 0, []
    for entry in entries:
        if entry["action"] == "alloc":
            allocated += entry["size"]
        elif entry["action"] == "free_completed":
            allocated -= entry["size"]
        else:
            continue
        curve.append(allocated)
    low = min(curve, default=0)  # what was there before the history began
    curve = [value - min(low, 0) for value in curve]
    width = max(1, math.ceil(len(curve) / points))
    kept = []
    for begin in range(0, len(curve), width):
        event = max(range(begin, min(begin + width, len(curve))), key=curve.__getitem__)
        kept.append({"event": event, "allocated_bytes": curve[event]})
    return {"events": len(curve), "points": kept}


def write(path, document):
    """Beside the file and renamed, so that a reader never sees half of it."""
    partial = f"{path}.part{os.getpid()}"
    with open(partial, "w", encoding="utf-8") as file:
        json.dump(document, file, allow_nan=False)
        file.write("\n")
    os.replace(partial, path)


def memory_callback(out, recipe=None, **options):
    """A transformers.TrainerCallback; made here, so that this file can be read without transformers."""
    from transformers import TrainerCallback

    class MemoryCallback(TrainerCallback):
        hook = None

        def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
            if self.hook:
                self.hook.detach()  # the last run did not end: Trainer tries again with a smaller batch
            given = {"grad_accum": args.gradient_accumulation_steps, **(recipe or {})}
            written = out if getattr(state, "is_world_process_zero", True) else None  # of several processes one writes
            self.hook = MemoryHook(model, optimizer, written, given, **options).__enter__()
            # accelerate puts autocast around the model's own forward, where a hook on the model does not see it.
            self.hook.autocast = "fp16" if getattr(args, "fp16", False) else "bf16" if getattr(args, "bf16", False) else None
            self.hook.handles.append(model.register_forward_hook(lambda *_: self.forwarded()))
            if not hasattr(TrainerCallback, "on_pre_optimizer_step"):
                self.watch(self.hook.optimizer)
            atexit.unregister(self.left_behind)
            atexit.register(self.left_behind)

        def watch(self, optimizer):
            """Trainer says when the optimizer has stepped since 4.42 and that it will since transformers#33444; before, the optimizer
            does, from PyTorch 2.0 on."""
            if hasattr(optimizer, "register_step_pre_hook"):
                self.hook.handles.append(optimizer.register_step_pre_hook(lambda *_: self.on_pre_optimizer_step()))
                if not hasattr(TrainerCallback, "on_optimizer_step"):
                    self.hook.handles.append(optimizer.register_step_post_hook(lambda *_: self.on_optimizer_step()))

        def forwarded(self):
            if self.hook.running() == "forward":  # else an evaluation's, or a second model's pass in the same loss
                self.hook.enter("backward", new_step=False)

        def on_step_begin(self, args, state, control, optimizer=None, **_):
            self.hook.optimizer = self.hook.optimizer or _inner(optimizer)  # some are made after training begins
            self.hook.enter("forward", new_step=True)

        def on_substep_end(self, *_, **__):
            self.hook.enter("forward", new_step=False)

        def on_pre_optimizer_step(self, *_, **__):
            self.hook.enter("optimizer", new_step=False)

        def on_optimizer_step(self, *_, **__):
            self.hook.enter("zero_grad", new_step=False)

        def on_step_end(self, *_, **__):
            self.hook.leave()

        def on_log(self, args, state, control, logs=None, **_):
            if self.hook and logs and "loss" in logs:
                self.hook.record_loss(logs["loss"])  # of the step that has just ended: the next one closes it

        def on_train_end(self, *_, **__):
            self.end(None, None)

        def end(self, kind, value):
            hook, self.hook = self.hook, None
            atexit.unregister(self.left_behind)
            hook.__exit__(kind, value, None)

        def left_behind(self):
            """Trainer says nothing when training fails: what is known by then is written as the interpreter ends."""
            if self.hook:
                value = getattr(sys, "last_value", None) or RuntimeError()
                self.end(type(value), value)

    return MemoryCallback()


# ---- reading models

def _has_kwargs(model):
    code = getattr(type(model).register_forward_pre_hook, "__code__", None)
    return code is not None and "with_kwargs" in code.co_varnames


def _storage(tensor):
    """Bytes and identity of what a tensor lies in."""
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    size = storage.nbytes() if hasattr(storage, "nbytes") else storage.size() * tensor.element_size()
    return int(size), (storage.data_ptr(), int(size))


def _method(model):
    names = [name for name, _ in model.named_parameters()]
    if not any("lora_" in name for name in names):
        return {"method": "full"}
    quantised = any(type(parameter).__name__ == "Params4bit" for parameter in model.parameters())
    ranks = [p.shape[0] for name, p in model.named_parameters() if "lora_A" in name]
    return {"method": "qlora" if quantised else "lora", **({"rank": int(ranks[0])} if ranks else {})}


def _inner(optimizer):
    """accelerate's and DeepSpeed's wrappers hold the optimizer that has the states and the name."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def _optimizer(optimizer):
    name = type(optimizer).__name__
    options = getattr(optimizer, "defaults", {})
    if name in ("Adam", "AdamW"):
        kind = "fused" if options.get("fused") else "forloop" if options.get("foreach") is False else "foreach"
        return {"optimizer": f"adamw_{kind}"}
    known = {"AdamW8bit": "adamw_8bit", "Adam8bit": "adamw_8bit", "PagedAdamW8bit": "paged_adamw_8bit", "Lion": "lion", "Muon": "muon"}
    if name == "SGD":
        return {"optimizer": "sgd_momentum" if options.get("momentum") else "sgd"}
    return {"optimizer": known[name]} if name in known else {}


def _config(model):
    """The model's config.json without names and paths; a stack of linear layers as the probe takes it."""
    config = getattr(model, "config", None)
    if config is not None:
        named = config.to_dict() if hasattr(config, "to_dict") else dict(config)
        return json.loads(json.dumps({key: value for key, value in named.items() if not key.startswith("_") and "path" not in key}, default=str))
    leaves = [module for module in model.modules() if not list(module.children())]
    if leaves and all(type(module).__name__ == "Linear" for module in leaves):
        return {"layers": [{"linear": [module.in_features, module.out_features], "bias": module.bias is not None} for module in leaves]}
    return None
