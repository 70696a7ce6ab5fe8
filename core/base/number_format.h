// number_format.h - the 16-bit float formats, bit by bit: conversion to and from fp32 with round-to-nearest-even.
#pragma once

#include <cstdint>

namespace ledger {

std::uint16_t bf16_from_float(float value);  // NaN stays NaN (quiet); overflow rounds to infinity
float float_from_bf16(std::uint16_t bits);
std::uint16_t fp16_from_float(float value);  // subnormals kept, overflow to infinity
float float_from_fp16(std::uint16_t bits);

}  // namespace ledger
