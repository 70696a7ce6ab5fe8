#!/usr/bin/env python3
"""Every document that the probe emits, and the core's answers other than reports (reports.test.mjs), agree with docs/schema and add up.

Needs build/bin/probe and build/bin/predict_cli (scripts/test builds them) and the Python package jsonschema."""

import copy
import functools
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import unittest

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "bin"
NAMES = ("recipe", "report", "measured", "comparison", "advice", "oom", "hook", "counted")
SCHEMAS = {name: json.loads((ROOT / "docs/schema" / f"{name}.schema.json").read_text()) for name in NAMES}
STORE = {schema["$id"]: schema for schema in SCHEMAS.values()}


@functools.lru_cache(None)
def validator(name):
    schema = SCHEMAS[name]
    try:  # jsonschema 4.18 and later
        from referencing import Registry, Resource
    except ImportError:  # Debian 12 has 4.10
        resolver = jsonschema.RefResolver(schema["$id"], schema, store=STORE)
        return jsonschema.Draft202012Validator(schema, resolver=resolver)
    registry = Registry().with_resources((id, Resource.from_contents(one)) for id, one in STORE.items())
    return jsonschema.Draft202012Validator(schema, registry=registry)


def core(lines):
    """Answers of the native core, one a line."""
    run = subprocess.run([BIN / "predict_cli"], input="\n".join(lines), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.measured, cls.measured_text = cls.measure()

    @staticmethod
    def measure():
        """A real run on this machine's CPU."""
        config = {"layers": [{"linear": [64, 96]}, {"linear": [96, 64]}]}
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "config.json"
            model.write_text(json.dumps(config))
            command = [BIN / "probe", "--model", model, "--device", "host", "--batch", "4", "--steps", "2", "--json", "-"]
            run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            raise AssertionError(f"probe ended with {run.returncode}: {run.stderr}")
        return json.loads(run.stdout), run.stdout

    def valid(self, name, document, label=""):
        errors = sorted(validator(name).iter_errors(document), key=lambda error: list(map(str, error.absolute_path)))
        if errors:
            lines = [f"{label} /{'/'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in errors[:5]]
            self.fail(f"{len(errors)} violations of {name}.schema.json\n" + "\n".join(lines))

    def test_schemas_are_schemas(self):
        for schema in SCHEMAS.values():
            jsonschema.Draft202012Validator.check_schema(schema)

    @staticmethod
    def reports():
        """Of a transformer, trained in full and with adapters, and of a plain stack."""
        llama = {"model_type": "llama", "num_hidden_layers": 2}
        models = ((llama, "full"), (llama, "lora"), ({"layers": [{"linear": [64, 96]}]}, "full"))
        asked = [{"config": config, "recipe": {"method": method, "seq": 64}, "timeline_points": 8} for config, method in models]
        return [answer["report"] for answer in core(["predict " + json.dumps(request) for request in asked])]

    def test_explained_errors(self):
        message = ("[rank1]:     loss.backward()\nCUDA out of memory. Tried to allocate 96.00 MiB. GPU 2 has a total capacity of 79.25 GiB of which "
                   "50.00 MiB is free. Process 12 has 17179869184.00 GiB memory in use. Including non-PyTorch memory, this process has 78.00 GiB "
                   "memory in use. Of the allocated memory 77.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated. ")
        texts = ["", "it does not work", message, "exits with return code = -9", "x" * 5_000_000 + message, message * 200, "<script>alert(1)</script> OOM"]
        asked = [{"text": text} for text in texts] + [{"text": message, "report": report} for report in self.reports()]
        for request, answer in zip(asked, core(["explain " + json.dumps(request) for request in asked])):
            with self.subTest(request["text"][:40]):
                self.valid("oom", answer["oom"])
                self.assertNotIn(answer["oom"]["cause"], answer["oom"]["also_possible"])
                self.assertEqual("report" in request, answer["oom"]["prediction"] is not None)
                for evidence in answer["oom"]["evidence"]:
                    self.assertIn(evidence["quote"], request["text"])

    def adds_up(self, document):
        at_peak = document["at_peak"]
        alive = at_peak["tensor_bytes"] + at_peak["workspace_bytes"]
        self.assertEqual(sum(at_peak["categories"].values()), alive)
        self.assertEqual(sum(line["bytes"] for line in at_peak["tensors"]), alive)
        self.assertEqual(alive + at_peak["allocator_rounding_bytes"], at_peak["allocated_bytes"])
        self.assertEqual(at_peak["allocated_bytes"] + at_peak["cached_bytes"], at_peak["reserved_bytes"])
        self.assertEqual(at_peak["tensor_bytes"], document["peaks"]["tensor_bytes"])
        for line in at_peak["tensors"]:
            product = line["count"] * line["element_bytes"]
            for factor in line["factors"]:
                product *= factor["value"]
            self.assertEqual(product, line["bytes"], line)

    def test_advice(self):
        config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 99,
                  "num_hidden_layers": 2}
        requests = [{"config": config, "recipe": {"batch": 4, "seq": 64, "memory_limit_bytes": limit}, "about": about}
                    for about in ("changes", "batch", "seq", "gpu") for limit in (0, 1 << 20, 900 << 20)]
        for request, answer in zip(requests, core(["advise " + json.dumps(request) for request in requests])):
            with self.subTest(request["about"], limit=request["recipe"]["memory_limit_bytes"]):
                self.valid("advice", answer["advice"])
                for change in answer["advice"].get("changes", []):
                    saved = answer["advice"]["before"]["allocated_bytes"] - change["after"]["allocated_bytes"]
                    self.assertEqual(saved, change["saved_bytes"])

    def test_plans(self):
        config = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "vocab_size": 1024, "num_hidden_layers": 4}
        asked = {"config": config, "recipe": {"seq": 256}, "gpus": 16, "global_batch": 64}
        requests = [{**asked, "about": "plans", "stack": "hf"}, {**asked, "about": "plans", "stack": "megatron"}, {**asked, "about": "cards"},
                    {**asked, "about": "plans", "recipe": {"seq": 256, "optimizer": "lion"}}]
        answers = core(["advise " + json.dumps(request) for request in requests])
        for answer in answers:
            self.valid("advice", answer["advice"])
            plans = answer["advice"].get("plans") or [row["plan"] for row in answer["advice"]["methods"]]
            self.assertTrue(plans)
            for plan in plans:
                parts = sum(plan["time"][name + "_s"] for name in ("compute", "tensor", "context", "pipeline", "bubble", "data"))
                self.assertAlmostEqual(plan["time"]["seconds"], parts, delta=1e-9 * parts)
        self.assertTrue(answers[-1]["advice"]["left_out"])

    def test_counted(self):
        """A model whose step is not modelled: counted, refused, exit 2."""
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "config.json"
            model.write_text(json.dumps({"model_type": "qwen2_vl"}))
            run = subprocess.run([BIN / "probe", "--model", model, "--dry-run", "--json", "-"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        document = json.loads(run.stdout)
        self.valid("counted", document)
        self.assertEqual(document["model"]["params"], 73381962752)
        for key in document:
            self.assertTrue(list(validator("counted").iter_errors({k: v for k, v in document.items() if k != key})), key)

    def test_measured(self):
        self.valid("measured", self.measured)
        self.adds_up(self.measured)
        self.assertEqual(self.measured["status"], "ok")
        self.assertTrue(self.measured["prediction"]["events_identical"])

    def test_measured_generation(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.json"
            command = [BIN / "probe", "--model", ROOT / "docs/examples/tiny-llama.json", "--device", "host", "--task", "generate",
                       "--seq", "16", "--new-tokens", "4", "--json", path]
            subprocess.run(command, capture_output=True, text=True, check=True)
            measured = json.loads(path.read_text())
        self.valid("measured", measured)
        self.adds_up(measured)
        self.assertEqual([phase["name"] for phase in measured["phases"]], ["load", "prefill", "decode1", "decode2", "decode3"])
        self.assertTrue(measured["prediction"]["events_identical"])
        answer = core(["compare " + json.dumps({"measured": measured})])[0]
        self.valid("comparison", answer["comparison"])
        self.assertEqual([row["difference_bytes"] for row in answer["comparison"]["phases"]], [0] * 5)

    def test_measured_by_ranks(self):
        """Two ranks that run, and one process in the place of another one's."""
        command = [BIN / "probe", "--model", ROOT / "docs/examples/tiny-llama.json", "--device", "host", "--seq", "16", "--dp", "2",
                   "--zero", "2", "--quiet", "--json", "-"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        world = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="localhost", PROBE_MASTER_PORT=port)
        ranks = [subprocess.Popen(command, env=dict(world, RANK=str(rank)), stdout=subprocess.PIPE, text=True) for rank in range(2)]
        texts = [rank.communicate(timeout=120)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0])
        self.assertEqual(texts[1], "")
        alone = subprocess.run(command + ["--as-rank", "1/2"], capture_output=True, text=True, check=True).stdout
        for text in (texts[0], alone):
            measured = json.loads(text)
            self.valid("measured", measured)
            self.adds_up(measured)
            self.assertEqual(measured["environment"]["world"]["size"], 2)
            self.assertTrue(measured["prediction"]["events_identical"])
        measured = json.loads(texts[0])
        self.assertEqual([row["rank"] for row in measured["ranks"]], [0, 1])
        self.assertEqual(measured["peaks"]["allocated_bytes"], max(row["peaks"]["allocated_bytes"] for row in measured["ranks"]))
        answer = core(["compare " + json.dumps({"measured": measured})])[0]
        self.valid("comparison", answer["comparison"])
        self.assertEqual([(row["name"], row["difference_bytes"]) for row in answer["comparison"]["ranks"]], [("0", 0), ("1", 0)])

    def test_measured_by_ranks_on_gpus(self):
        """Two ranks on emulated GPUs, with a library in NCCL's place."""
        command = [BIN / "emulated_probe", "--model", ROOT / "docs/examples/tiny-llama.json", "--device", "cuda", "--seq", "16", "--dp", "2",
                   "--fsdp", "2", "--quiet", "--json", "-"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        world = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="localhost", PROBE_MASTER_PORT=port, EMULATED_GPUS="2",
                     PROBE_LIB_PATH=str(BIN.parent / "tests/nccl"))
        ranks = [subprocess.Popen(command, env=dict(world, RANK=str(rank)), stdout=subprocess.PIPE, text=True) for rank in range(2)]
        texts = [rank.communicate(timeout=120)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0])
        measured = json.loads(texts[0])
        self.valid("measured", measured)
        self.adds_up(measured)
        nccl = measured["device_memory"]["nccl"]
        self.assertGreater(nccl["init_bytes"], 0)
        self.assertEqual(nccl["connect_bytes"], sum(one["connect_bytes"] for one in nccl["communicators"]))
        self.assertEqual(measured["device_memory"]["unexplained_bytes"], 0)

    def test_measured_on_a_gpu(self):
        """Files of a GPU run, however it ends, made by the emulated device."""
        for status in ("ok", "oom", "timeout", "interrupted", "error"):
            run = subprocess.run([BIN / "emulated_run", status], capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            measured = json.loads(run.stdout)
            self.valid("measured", measured, status)
            self.assertEqual(measured["status"], status)
            self.assertEqual(measured["environment"]["gpu"]["name"], "Emulated GPU")
            self.assertEqual(measured["peaks"]["device_bytes"], measured["device_memory"]["peak_bytes"])
            self.assertEqual(measured["device_memory"]["unexplained_bytes"], 0, status)
            if status == "ok":
                self.adds_up(measured)
                self.assertTrue(measured["prediction"]["events_identical"])
                answer = core(["compare " + json.dumps({"measured": measured})])[0]
                self.valid("comparison", answer["comparison"])
            if status == "oom":
                self.assertGreater(measured["error"]["short_by_bytes"], 0)

    def test_measured_on_a_gpu_that_hangs(self):
        """What was measured until the last phase's end, written while the device does not answer."""
        run = subprocess.run([BIN / "emulated_run", "hung"], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        measured = json.loads(run.stdout)
        self.valid("measured", measured)
        self.assertEqual(measured["status"], "timeout")
        self.assertEqual([phase["name"] for phase in measured["phases"]][-1], "step1.zero_grad")
        self.assertEqual(len(measured["steps"]), 1)
        self.assertIsNone(measured["device_memory"]["unexplained_bytes"])

    def test_measured_names_no_machine(self):
        for private in (str(pathlib.Path.home()), str(ROOT), tempfile.gettempdir(), subprocess.getoutput("hostname")):
            if len(private) > 3:
                self.assertNotIn(private, self.measured_text)

    def test_comparison(self):
        answer = core(["compare " + json.dumps({"measured": self.measured})])[0]
        self.assertIn("comparison", answer, answer)
        self.valid("comparison", answer["comparison"])
        for row in answer["comparison"]["phases"]:
            self.assertEqual(row["difference_bytes"], 0, row)

    def test_every_key_is_required(self):
        """The schema is no rubber stamp: a file that lost any one key is refused."""
        for key in self.measured:
            with self.subTest(f"without {key}"):
                self.assertTrue(list(validator("measured").iter_errors({k: v for k, v in self.measured.items() if k != key})))
        for parent in ("peaks", "at_peak", "tool"):
            for key in self.measured[parent]:
                with self.subTest(f"without {parent}.{key}"):
                    damaged = copy.deepcopy(self.measured)
                    del damaged[parent][key]
                    self.assertTrue(list(validator("measured").iter_errors(damaged)))

    def test_unknown_recipe_keys_are_refused(self):
        self.assertTrue(list(validator("recipe").iter_errors({"batchsize": 1})))
        self.assertTrue(list(validator("recipe").iter_errors({"optimizer": "adam"})))
        self.assertFalse(list(validator("recipe").iter_errors({"batch": 2, "targets": ["q_proj"], "gpu": None})))


if __name__ == "__main__":
    unittest.main()
