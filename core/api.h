// api.h - the only door: request JSON in, answer JSON out. Used by wasm/, probe/ and tests.
//
// Every answer is {"report": {...}} (or the named object) or {"problem": {"code","where","read","expected","nearest"}}.
// Formats: docs/file-formats.md.
#pragma once

#include <string>
#include <string_view>

namespace ledger {

// request: {"config": <config.json as object or as text>, "recipe": {...}, "timeline_points": 400}
std::string predict(std::string_view request);

// {"version", "gpus": [...], "recipe_keys": [...]}: what forms are built from.
std::string catalogue();

// request: {"measured": <measured.json as object or as text>} -> {"comparison": {...}} against the prediction for the
// same model, recipe and run options, made anew by this core.
std::string compare(std::string_view request);

// request: {"text": "<an out-of-memory error, a log's end>", "report": <report of the same run, optional>} -> {"oom":
// {...}} Needs none of the others: the page has it in a WebAssembly module of its own.
std::string explain_oom(std::string_view request);

// request: as predict's, with "about": "changes" (what lowers the peak), or "batch", "seq", "gpu" (the most that fits,
// the smallest card) -> {"advice": {...}}. Runs the recipe some tens of times: pages ask in a worker.
std::string advise(std::string_view request);

// request: {"about": "formats" | "number" | "update" | "scaling" | "tensor" | "ledger" | "cut", ...} -> {"lesson":
// {...}}: the figures of the course (docs/course.md). The page has it in a WebAssembly module of its own.
std::string lesson(std::string_view request);

const char* version();

}  // namespace ledger
