#include "core/trace/shape.h"

namespace ledger {
namespace {

using enum Sym;

// clang-format off
constexpr std::array<SymInfo, static_cast<std::size_t>(Sym::count_)> kSyms = {{
    {"", {none, none}},
    {"b", {none, none}},
    {"s", {none, none}},
    {"h", {none, none}},
    {"ffn", {none, none}},
    {"V", {none, none}},
    {"nh", {none, none}},
    {"nkv", {none, none}},
    {"d", {none, none}},
    {"L", {none, none}},
    {"r", {none, none}},
    {"b*s", {b, s}},
    {"nh*d", {nh, d}},
    {"nkv*d", {nkv, d}},
    {"d/2", {none, none}},
    {"s+1", {none, none}},
    {"c", {none, none}},
    {"in", {none, none}},
    {"out", {none, none}},
    {"E", {none, none}},
    {"ffn_e", {none, none}},
    {"b*s*k", {none, none}},
    {"i", {none, none}},
    {"p", {none, none}},
    {"h_v", {none, none}},
    {"ffn_v", {none, none}},
    {"i*p", {images, patches}},
}};
// clang-format on

}  // namespace

const SymInfo& info(Sym sym) {
  return kSyms[static_cast<std::size_t>(sym)];
}

}  // namespace ledger
