#!/usr/bin/env python3
"""How often the OOM reader is right, by the confidence it gives: python3 tests/oom/calibrate.py PROBE REPORTS.json > tests/fixtures/oom/calibration.json

REPORTS.json: a list of {"error_text", "stage", "cause_class", "certainty", "frames", "parsed"}, as collected from public reports. The texts
are their authors' and stay where they are; what is written here are counts only. scripts/accuracy prints them."""
import json
import subprocess
import sys

BOUNDS = (0, 0.2, 0.35, 0.5, 0.65, 0.8, 1.01)
FIELDS = {"request_gib": "requested_bytes", "total_gib": "capacity_bytes", "allocated_gib": "allocated_bytes", "free_gib": "free_bytes",
          "reserved_gib": "reserved_bytes"}
GIB, SLACK, UNKNOWN = 2.0 ** 30, 0.02, 1e6  # WSL prints 2^64 bytes for what it does not know


def explain(probe, text):
    run = subprocess.run([probe, "--explain-oom", "-", "--json", "-"], input=text, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def numbers_right(answer, parsed):
    want = {field: parsed[key] for key, field in FIELDS.items() if key in parsed and parsed[key] < UNKNOWN}
    return any(all(m[f] is not None and abs(m[f] / GIB - v) <= SLACK for f, v in want.items()) for m in answer["messages"])


def main(probe, path):
    numbers, stages, buckets = [0, 0], [0, 0], [[0, 0, 0, 0.0] for _ in BOUNDS[1:]]
    for row in json.load(open(path)):
        if not row.get("error_text"):
            continue
        answer = explain(probe, row["error_text"])
        if row.get("parsed"):
            numbers = [numbers[0] + numbers_right(answer, row["parsed"]), numbers[1] + 1]
        if row.get("frames") and row["stage"] != "unknown":
            stages = [stages[0] + (answer["stage"] == row["stage"]), stages[1] + 1]
        if row["certainty"] == "guess" or row["cause_class"] == "unknown":
            continue
        bucket = buckets[next(i for i, bound in enumerate(BOUNDS[1:]) if answer["confidence"] < bound)]
        first = answer["cause"] == row["cause_class"]
        bucket[0] += 1
        bucket[1] += first
        bucket[2] += first or row["cause_class"] in answer["also_possible"]
        bucket[3] += answer["confidence"]
    rows = [{"from": low, "to": min(high, 1), "reports": n, "first": first, "named": named, "mean_confidence": round(sum_ / n, 3) if n else None}
            for low, high, (n, first, named, sum_) in zip(BOUNDS, BOUNDS[1:], buckets)]
    result = {"numbers": {"right": numbers[0], "of": numbers[1]}, "stage": {"right": stages[0], "of": stages[1]}, "causes": rows}
    print(json.dumps(result, indent=2))


main(*sys.argv[1:])
