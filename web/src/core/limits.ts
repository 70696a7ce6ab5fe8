// limits.ts - sizes that the page refuses before reading; equal to the core's own (core/base/json.h, JsonLimits).

export const LARGEST_INPUT_BYTES = 8 * 1024 * 1024;

// Logs end with the error: of larger files this much is read (core/oom/explain.cc).
export const LOG_TAIL_BYTES = 4 * 1024 * 1024;
