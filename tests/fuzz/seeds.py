#!/usr/bin/env python3
"""Writes what libFuzzer starts from: OUT/<target>/ with one file a seed, and OUT/words.dict with the words of the readers.

usage: tests/fuzz/seeds.py OUT

Configs and recipes are those of the fixtures; what has no fixture of its own stands in tests/fuzz/seeds/<target>/."""
import glob, json, os, re, shutil, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FIXTURES = os.path.join(ROOT, "tests", "fixtures")


def rows(pattern):
    for path in sorted(glob.glob(os.path.join(FIXTURES, pattern))):
        with open(path) as file:
            yield from json.load(file)["rows"]


def checkpoints():
    for path in sorted(glob.glob(os.path.join(ROOT, "core", "config", "checkpoints", "*.json"))):
        with open(path) as file:
            yield json.load(file)["config"]


def small(config):
    """The same model with few and narrow layers, so that a question takes a moment."""
    sizes = {"num_hidden_layers": 2, "n_layer": 2, "vocab_size": 512}
    return {key: sizes.get(key, value) for key, value in config.items()}


def questions():
    recipes = {json.dumps(row["recipe"], sort_keys=True): row["recipe"] for row in rows("traces/*.json")}
    models = {}
    for config in checkpoints():
        models.setdefault(config.get("model_type", "plain"), small(config))
    short = [dict(recipe, seq=64) for recipe in recipes.values()]
    for i, config in enumerate(models.values()):
        for recipe in short[i % 7::7]:
            yield {"config": config, "recipe": recipe, "timeline_points": 8}


def words():
    """String literals of the readers: keys, values, marks of messages."""
    found = set()
    for folder in ("config", "oom", "lesson", "answer"):
        for path in glob.glob(os.path.join(ROOT, "core", folder, "*.cc")):
            with open(path) as file:
                found.update(re.findall(r'"([A-Za-z][\x20\x21\x23-\x5b\x5d-\x7e]{1,30})"', file.read()))
    return sorted(found)


def write(out, target, seeds):
    folder = os.path.join(out, target)
    os.makedirs(folder, exist_ok=True)
    for i, seed in enumerate(seeds):
        with open(os.path.join(folder, f"seed-{i}"), "w") as file:
            file.write(seed if isinstance(seed, str) else json.dumps(seed))
    for path in glob.glob(os.path.join(ROOT, "tests", "fuzz", "seeds", target, "*")):
        shutil.copy(path, folder)


def main():
    out = sys.argv[1]
    write(out, "config", list(checkpoints()) + [row["model"] for row in rows("traces/*.json")])
    write(out, "recipe", [row["recipe"] for row in rows("traces/*.json")])
    write(out, "request", questions())
    for target in ("oom", "measured", "lesson"):
        write(out, target, [])
    with open(os.path.join(out, "words.dict"), "w") as file:
        file.writelines(f'"{word}"\n' for word in words())


main()
