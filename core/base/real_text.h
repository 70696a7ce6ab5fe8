// real_text.h - a double as decimal digits and back, by whatever the platform has that rounds correctly: the C library
// natively (real_text.cc), the browser's own numbers under WebAssembly (wasm/real_text.cc), which spares every reader
// the download of printf and strtod.
#pragma once

namespace ledger {

constexpr int kRealDigits = 32;  // room for write_digits: sign, 17 digits, point, exponent

// "d.ddde+XX" with `precision` digits after the first, correctly rounded; `number` is finite. The exponent has a sign
// and at least one digit.
void write_digits(char (&text)[kRealDigits], int precision, double number);

// The double nearest to a decimal number in JSON's spelling.
double read_digits(const char* text);

}  // namespace ledger
