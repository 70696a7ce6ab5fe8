#!/usr/bin/env python3
"""probe/torch_hook.py on an allocator that answers with recorded numbers, and, where torch is installed, on a CPU.

Needs build/bin/predict_cli (scripts/test builds it) and jsonschema for the document's form."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("torch_hook", ROOT / "probe" / "torch_hook.py")
torch_hook = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(torch_hook)
MIB = 1 << 20
# max_memory_allocated at the end of load and of each phase of two steps, as a run answered.
RECORDED = [32, 48, 80, 112, 80, 112, 144, 112, 96]


class Storage:
    def __init__(self, place, size):
        self.place, self.size = place, size

    def nbytes(self):
        return self.size

    def data_ptr(self):
        return self.place


class Tensor:
    """As much of a tensor as the hook reads."""

    made = 0

    def __init__(self, shape, dtype="torch.float32", width=4, device="cuda", share=None):
        Tensor.made += 1
        self.shape, self.dtype, self.width, self.grad, self.requires_grad = shape, dtype, width, None, True
        self.device = types.SimpleNamespace(type=device)
        self.place = share.place if share else Tensor.made

    def numel(self):
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def element_size(self):
        return self.width

    def is_floating_point(self):
        return True

    def untyped_storage(self):
        return Storage(self.place, self.numel() * self.width)


class Linear:
    def __init__(self, n):
        self.in_features = self.out_features = n
        self.weight, self.bias = Tensor((n, n)), None

    def children(self):
        return []


class Model:
    config = None

    def __init__(self, layers=2, n=2048):
        self.layers = [Linear(n) for _ in range(layers)]
        self.hooks = []

    def named_parameters(self):
        return [(f"{i}.weight", layer.weight) for i, layer in enumerate(self.layers)]

    def parameters(self):
        return [parameter for _, parameter in self.named_parameters()]

    def buffers(self):
        return []

    def modules(self):
        return self.layers

    def register_forward_pre_hook(self, hook):
        return self.hooked(("before", hook))

    def register_forward_hook(self, hook):
        return self.hooked(("after", hook))

    def hooked(self, entry):
        self.hooks.append(entry)
        return types.SimpleNamespace(remove=lambda: self.hooks.remove(entry))

    def forward(self, batch):
        for wanted, more in (("before", ()), ("after", (None,))):
            for when, hook in list(self.hooks):
                if when == wanted:
                    hook(self, (batch,), *more)


class AdamW:
    defaults = {"fused": True}

    def __init__(self, model):
        self.model, self.state = model, {}

    def step(self):
        for parameter in self.model.parameters():
            self.state.setdefault(parameter, {"step": 1.0, "exp_avg": Tensor(parameter.shape), "exp_avg_sq": Tensor(parameter.shape)})


def fake_torch(peaks=RECORDED):
    answers = iter(peaks)
    now = {"peak": 0}
    cuda = types.SimpleNamespace(
        is_available=lambda: True, memory_allocated=lambda d: now["peak"] * MIB, max_memory_allocated=lambda d: now["peak"] * MIB,
        max_memory_reserved=lambda d: (now["peak"] + 8) * MIB, reset_peak_memory_stats=lambda d: now.update(peak=next(answers, 0)),
        synchronize=lambda d: None, memory_stats=lambda d: {"segment.all.current": 3, "num_alloc_retries": 0},
        get_device_name=lambda d: "a card", mem_get_info=lambda d: (100 * MIB, 1000 * MIB))
    return types.SimpleNamespace(cuda=cuda, is_autocast_enabled=lambda: False, __version__="2.5.1")


def train(folder, torch=None, steps=2, fail_at=None, **options):
    model = Model()
    optimizer = AdamW(model)
    out = pathlib.Path(folder) / "measured.json"
    hook = torch_hook.MemoryHook(model, optimizer, str(out), torch=torch or fake_torch(), **options)
    with hook:
        for step in range(steps):
            with hook.phase("forward"):
                model.forward(types.SimpleNamespace(shape=(4, 2048)))
                if step == fail_at:
                    raise type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory on /home/somebody")
            with hook.phase("backward"):
                for parameter in model.parameters():
                    parameter.grad = Tensor(parameter.shape)
                hook.record_loss(1.5)
            with hook.phase("optimizer"):
                optimizer.step()
            with hook.phase("zero_grad"):
                pass
    return json.loads(out.read_text())


class Hook(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.folder = holder.name
        self.addCleanup(holder.cleanup)

    def test_phases_are_named_and_have_the_allocators_peaks(self):
        document = train(self.folder)
        names = ["load"] + [f"step{step}.{phase}" for step in (1, 2) for phase in torch_hook.PHASES]
        self.assertEqual([phase["name"] for phase in document["phases"]], names)
        self.assertEqual([phase["allocated_peak_bytes"] // MIB for phase in document["phases"]], RECORDED)
        self.assertEqual(document["peaks"]["allocated_bytes"], 144 * MIB)
        self.assertEqual(document["peaks"]["phase"], "step2.backward")
        self.assertEqual(document["peaks"]["device_bytes"], 900 * MIB)

    def test_categories_are_walked_each_storage_once(self):
        document = train(self.folder)
        matrix = 2048 * 2048 * 4
        self.assertEqual(document["at_peak"]["categories"], {"weights": 2 * matrix, "gradients": 2 * matrix, "optimizer_states": 4 * matrix})
        model = Model()
        model.layers[1].weight = Tensor((2048, 2048), share=model.layers[0].weight)  # tied
        held = torch_hook.MemoryHook(model, None, torch=fake_torch()).holds()
        self.assertEqual(held, {"weights": matrix})

    def test_tensors_of_the_host_are_not_the_cards(self):
        model = Model()
        model.layers[0].weight.device.type = "cpu"
        self.assertEqual(torch_hook.MemoryHook(model, None, torch=fake_torch()).holds(), {"weights": 2048 * 2048 * 4})

    def test_steps_have_losses(self):
        document = train(self.folder)
        self.assertEqual([step["loss"] for step in document["steps"]], [1.5, 1.5])
        self.assertEqual(document["options"]["steps"], 2)

    def test_accumulation_numbers_its_micro_batches(self):
        hook = torch_hook.MemoryHook(Model(), None, torch=fake_torch(), recipe={"grad_accum": 2})
        with hook:
            for name in ("forward", "backward", "forward", "backward", "optimizer", "forward"):
                hook.enter(name)
        self.assertEqual([phase["name"] for phase in hook.phases][1:],
                         ["step1.1.forward", "step1.1.backward", "step1.2.forward", "step1.2.backward", "step1.optimizer", "step2.1.forward"])

    def test_the_recipe_is_seen_and_what_is_said_counts_more(self):
        document = train(self.folder, recipe={"precision": "fp32", "batch": 9})
        self.assertEqual(document["recipe"], {"method": "full", "optimizer": "adamw_fused", "precision": "fp32", "batch": 9})
        self.assertEqual(document["model"]["config"], {"layers": [{"linear": [2048, 2048], "bias": False}] * 2})

    def test_running_out_of_memory_is_a_result(self):
        with self.assertRaises(RuntimeError):
            train(self.folder, fail_at=1)
        document = json.loads((pathlib.Path(self.folder) / "measured.json").read_text())
        self.assertEqual(document["status"], "oom")
        self.assertEqual(document["error"], {"type": "OutOfMemoryError", "phase": "step2.forward"})

    def test_nothing_private_is_written(self):
        model = Model()
        model.config = types.SimpleNamespace(model_type="llama", to_dict=lambda: {"hidden_size": 8, "_name_or_path": "/home/somebody/model", "model_path": "/x"})
        hook = torch_hook.MemoryHook(model, None, torch=fake_torch())
        with hook:
            pass
        text = json.dumps(hook.document())
        for word in ("somebody", "/x", "/home"):
            self.assertNotIn(word, text)
        self.assertEqual(hook.document()["model"]["config"], {"hidden_size": 8})

    def test_a_history_becomes_a_curve_that_keeps_its_top(self):
        entries = [{"action": "alloc", "size": 100}, {"action": "segment_alloc", "size": 999}, {"action": "free_completed", "size": 60}] * 1000
        curve = torch_hook.timeline(entries, points=50)
        self.assertEqual(curve["events"], 2000)
        self.assertLessEqual(len(curve["points"]), 50)
        self.assertEqual(max(point["allocated_bytes"] for point in curve["points"]), 100 + 999 * 40)

    def test_no_half_written_file_is_left(self):
        with self.assertRaises(ValueError):
            torch_hook.write(f"{self.folder}/x.json", {"loss": float("nan")})
        self.assertFalse((pathlib.Path(self.folder) / "x.json").exists())

    def test_the_document_agrees_with_its_schema(self):
        try:
            import jsonschema
        except ImportError:
            self.skipTest("python3-jsonschema is not installed")
        schema = json.loads((ROOT / "docs/schema/hook.schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(train(self.folder))
        with self.assertRaises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(schema).validate({**train(self.folder), "hostname": "x"})

    def test_the_core_compares_it_with_its_prediction(self):
        measured = train(self.folder, recipe={"precision": "fp32", "batch": 4})
        run = subprocess.run([ROOT / "build/bin/predict_cli"], input="compare " + json.dumps({"measured": measured}), capture_output=True, text=True, check=True)
        comparison = json.loads(run.stdout)["comparison"]
        rows = {row["name"]: row for row in comparison["categories"]}
        for category in ("weights", "optimizer_states"):  # gradients are walked at the end of the phase, not at its peak
            self.assertLessEqual(abs(rows[category]["difference_bytes"]), 16, category)  # step counters
        self.assertEqual(sum(row["measured_bytes"] for row in comparison["categories"]), measured["at_peak"]["allocated_bytes"])
        for phase in comparison["phases"]:
            self.assertEqual(sum(line["measured_bytes"] for line in phase["lines"]), phase["measured_bytes"])


class Trainer:
    """As much of transformers as the callback meets: a base class, and a handler that calls every event with the same keywords."""

    EVENTS = ("on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_step_begin", "on_substep_end", "on_step_end", "on_evaluate", "on_log",
              "on_pre_optimizer_step", "on_optimizer_step")

    def __init__(self, model, optimizer, events=EVENTS, first=True, **arguments):
        self.model, self.optimizer = model, optimizer
        self.args = types.SimpleNamespace(**{"gradient_accumulation_steps": 1, "bf16": False, "fp16": False, **arguments})
        self.state = types.SimpleNamespace(is_world_process_zero=first)
        base = type("TrainerCallback", (), {event: lambda self, *_, **__: None for event in events})
        self.module = types.SimpleNamespace(TrainerCallback=base)

    def callback(self, *arguments, **options):
        before = sys.modules.get("transformers")
        sys.modules["transformers"] = self.module
        try:
            return torch_hook.memory_callback(*arguments, **options)
        finally:
            sys.modules.pop("transformers") if before is None else sys.modules.update(transformers=before)

    def run(self, callback, calls):
        for call in calls:
            event, more = (call, {}) if isinstance(call, str) else (next(iter(call)), {"logs": next(iter(call.values()))})
            if event.startswith("on_"):
                getattr(callback, event)(self.args, self.state, None, model=self.model, optimizer=self.optimizer, processing_class=None, **more)
            elif event.endswith("forward"):
                self.model.training = event == "forward"
                self.model.forward(types.SimpleNamespace(shape=(4 if self.model.training else 64, 2048)))


class Wrapped:
    """An optimizer as accelerate hands it on."""

    def __init__(self, optimizer):
        self.optimizer = optimizer


class Callback(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(holder.name) / "measured.json"
        self.addCleanup(holder.cleanup)

    def train(self, calls, grad_accum=1, **arguments):
        model = Model()
        trainer = Trainer(model, Wrapped(AdamW(model)), gradient_accumulation_steps=grad_accum, **arguments)
        callback = trainer.callback(str(self.out), torch=fake_torch([1] * 99))
        trainer.run(callback, calls)
        return callback, model

    def test_the_trainers_calls_become_phases(self):
        for case in json.loads((ROOT / "tests/fixtures/hook/trainer_calls.json").read_text())["cases"]:
            with self.subTest(case["name"]):
                _, model = self.train(case["calls"], case["grad_accum"])
                document = json.loads(self.out.read_text())
                self.assertEqual([phase["name"] for phase in document["phases"]], ["load", *case["phases"]])
                self.assertEqual([step["loss"] for step in document["steps"]], case["losses"])
                self.assertEqual(document["recipe"]["batch"], 4, "of training, not of an evaluation")
                self.assertEqual(document["recipe"]["optimizer"], "adamw_fused", "through accelerate's wrapper")
                self.assertEqual(model.hooks, [])

    def test_precision_is_what_the_trainer_was_told(self):
        for given, precision in (({}, "fp32"), ({"bf16": True}, "amp-bf16"), ({"fp16": True}, "amp-fp16")):
            self.train(["on_train_begin", "on_step_begin", "forward", "on_step_end", "on_train_end"], **given)
            self.assertEqual(json.loads(self.out.read_text())["recipe"]["precision"], precision)

    def test_of_several_processes_one_writes(self):
        self.train(["on_train_begin", "on_step_begin", "forward", "on_step_end", "on_train_end"], first=False)
        self.assertFalse(self.out.exists())

    def test_a_run_that_fails_is_written_when_the_interpreter_ends(self):
        callback, _ = self.train(["on_train_begin", "on_step_begin", "forward"])
        sys.last_value = type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory")
        self.addCleanup(lambda: delattr(sys, "last_value"))
        callback.left_behind()
        document = json.loads(self.out.read_text())
        self.assertEqual((document["status"], document["error"]), ("oom", {"type": "OutOfMemoryError", "phase": "step1.backward"}))
        callback.left_behind()  # once

    def test_a_run_begun_again_leaves_no_hooks_of_the_first(self):
        _, model = self.train(["on_train_begin", "on_step_begin", "forward", "on_train_begin", "on_step_begin", "forward", "on_step_end", "on_train_end"])
        self.assertEqual(model.hooks, [])
        self.assertEqual(json.loads(self.out.read_text())["options"]["steps"], 1)

    def test_an_older_trainer_leaves_it_to_the_optimizer_to_say_when_it_steps(self):
        model = Model()
        optimizer, told = AdamW(model), []
        for kind in ("pre", "post"):
            setattr(optimizer, f"register_step_{kind}_hook", lambda hook: (told.append(hook), types.SimpleNamespace(remove=lambda: None))[1])
        trainer = Trainer(model, optimizer, events=[event for event in Trainer.EVENTS if "optimizer" not in event])
        callback = trainer.callback(str(self.out), torch=fake_torch([1] * 99))
        trainer.run(callback, ["on_train_begin", "on_step_begin", "forward"])
        for hook in told:
            hook(optimizer, (), {})
        trainer.run(callback, ["on_step_end", "on_train_end"])
        names = [phase["name"] for phase in json.loads(self.out.read_text())["phases"]]
        self.assertEqual(names[1:], ["step1.forward", "step1.backward", "step1.optimizer", "step1.zero_grad"])


class RealTorch(unittest.TestCase):
    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed for this Python (Debian: python3-torch)")
        self.torch = torch

    def test_a_loop_on_the_cpu(self):
        torch = self.torch
        model = torch.nn.Sequential(torch.nn.Linear(64, 96, bias=False), torch.nn.Linear(96, 64, bias=False))
        optimizer = torch.optim.AdamW(model.parameters())
        hook = torch_hook.MemoryHook(model, optimizer)
        with hook:
            for _ in range(2):
                with hook.phase("forward"):
                    loss = model(torch.randn(4, 64)).square().mean()
                with hook.phase("backward"):
                    loss.backward()
                    hook.record_loss(loss)
                with hook.phase("optimizer"):
                    optimizer.step()
                with hook.phase("zero_grad"):
                    optimizer.zero_grad(set_to_none=True)
        document = hook.document()
        if torch.cuda.is_available():
            self.assertEqual(document["environment"]["device"], "cuda")
            return
        weights = 2 * 64 * 96 * 4
        ends = {phase["name"]: phase["end_bytes"] for phase in document["phases"]}
        self.assertEqual(ends["load"], weights)
        self.assertEqual(ends["step1.backward"], 2 * weights)
        self.assertGreaterEqual(ends["step1.optimizer"], 4 * weights)
        self.assertLess(ends["step1.zero_grad"], ends["step1.optimizer"])
        self.assertEqual(document["model"]["config"], {"layers": [{"linear": [64, 96], "bias": False}, {"linear": [96, 64], "bias": False}]})
        self.assertEqual(document["recipe"]["batch"], 4)
        self.assertTrue(all(step["loss"] > 0 for step in document["steps"]))


if __name__ == "__main__":
    unittest.main()
