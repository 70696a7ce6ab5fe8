#!/usr/bin/env python3
"""The model and recipe of a measured file once more, by torch and transformers (and peft for LoRA): what PyTorch's allocator
counts, and how long a step takes. Prints JSON; exit code 77 where these packages or a GPU are not there."""

import json
import pathlib
import sys
import time

SKIPPED = 77


def skip(why):
    print(why, file=sys.stderr)
    sys.exit(SKIPPED)


def model_of(measured, torch, transformers):
    config = measured["model"]["config"]
    family = measured["model"]["family"]
    keys = {key: value for key, value in config.items() if key != "model_type" and value is not None}
    shape = transformers.AutoConfig.for_model(family, **keys)
    shape.use_cache = False
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16, attn_implementation="sdpa")
    recipe = measured["recipe"]
    if recipe["checkpointing"] == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if recipe["method"] == "lora":
        import peft

        model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.LoraConfig(r=recipe["rank"], lora_alpha=recipe["rank"], target_modules="all-linear", task_type="CAUSAL_LM"))
    return model.train()


def main():
    measured = json.loads(pathlib.Path(sys.argv[1]).read_text())
    try:
        import torch
        import transformers
    except ImportError as missing:
        skip(str(missing))
    if not torch.cuda.is_available():
        skip("torch sees no GPU")
    model = model_of(measured, torch, transformers)
    recipe = measured["recipe"]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=True)
    vocab = measured["model"]["dims"]["vocab"]
    ids = torch.randint(0, vocab, (recipe["batch"], recipe["seq"]), device="cuda")
    losses, milliseconds = [], []
    for _ in range(len(measured["steps"])):
        torch.cuda.synchronize()
        began = time.monotonic()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        milliseconds.append(1000 * (time.monotonic() - began))
        losses.append(float(loss.detach()))
        del loss
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__,
                      "allocated_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved(),
                      "step_ms": min(milliseconds), "losses": losses}))


if __name__ == "__main__":
    main()
