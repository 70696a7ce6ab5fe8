#include "tests/probe/device/op_cases.h"

#include "core/trace/window_grid.h"

namespace ledger::op_cases {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
constexpr DType kTraining[] = {DType::f32, DType::bf16};

class Maker {
 public:
  explicit Maker(std::uint32_t seed) : engine_(seed) {}
  std::vector<OpCase> cases;

  std::uint64_t size(std::uint64_t least, std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(least, most)(engine_);
  }
  enum Layout { kDense, kReversed, kCut, kLayouts };

  // Dense, with its dimensions in reverse order in memory, or cut out of something larger at an odd offset.
  TestTensor random(DType dtype, Sizes sizes, double low = -2, double high = 2, int layout = kDense) {
    Sizes whole = sizes;
    if (layout == kReversed) std::reverse(whole.begin(), whole.end());
    if (layout == kCut) {
      for (std::uint64_t& n : whole)
        n += 3;
    }
    TestTensor t = one_op::dense(dtype, whole, {});
    std::uniform_real_distribution<double> uniform(low, high);
    t.memory.resize(t.numel());
    for (double& value : t.memory)
      value = one_op::rounded_to(dtype, uniform(engine_));
    if (layout == kReversed) std::reverse(t.strides.begin(), t.strides.end());
    if (layout == kCut) {
      for (const std::int64_t stride : t.strides)
        t.offset += static_cast<std::uint64_t>(stride);
    }
    t.sizes = sizes;
    return t;
  }
  TestTensor ids(const Sizes& sizes, std::uint64_t below) {
    return random(DType::i64, sizes, 0, static_cast<double>(below) - 1e-9);
  }
  TestTensor like(TestTensor t, DType dtype) {  // an output laid out as t is
    t.dtype = dtype;
    const double nothing = info(dtype).floating ? std::numeric_limits<double>::quiet_NaN() : 0;
    std::fill(t.memory.begin(), t.memory.end(), nothing);
    return t;
  }

  OpCase& add(std::string name, OpKind op, std::vector<TestTensor> in, std::vector<TestTensor> out, Attr attr = {}) {
    OpCase c;
    c.name = std::string(op_name(op)) + " " + std::move(name);
    c.op = op;
    c.in = std::move(in);
    c.out = std::move(out);
    c.attr = attr;
    cases.push_back(std::move(c));
    return cases.back();
  }

  void elementwise();
  void conversions();
  void broadcasting();
  void creation();
  void reductions();
  void rows();
  void moving();
  void images();
  void indexing();
  void products();
  void attention();
  void packed_attention(DType dtype, const WindowGrid& grid);
  void attention_with_bias();
  void losses();
  void cut_losses();
  void fused();
  void optimizers();
  void routing();
  void quantisation();
  void collectives();

 private:
  void attention_case(OpKind forward, OpKind backward, DType dtype, const Sizes& q, std::uint64_t kv_heads,
                      std::uint64_t keys, bool biased);
  std::mt19937 engine_;
};

std::string title(DType dtype, int layout = 0) {
  constexpr const char* kNames[] = {"", " reversed", " cut"};
  return std::string(info(dtype).name) + kNames[layout];
}

struct Formula {
  OpKind op;
  std::size_t inputs;
  double low = -2, high = 2;
  std::int64_t flag = 0;
};

constexpr Formula kFormulas[] = {
    {OpKind::to_copy, 1},
    {OpKind::clone, 1},
    {OpKind::copy_into, 1},
    {OpKind::add, 2},
    {OpKind::add_scalar, 1},
    {OpKind::mul, 2},
    {OpKind::rsub_scalar, 1},
    {OpKind::mul_scalar, 1},
    {OpKind::div_scalar, 1},
    {OpKind::sub, 2},
    {OpKind::div, 2, 0.25, 3},
    {OpKind::sqrt, 1, 0.25, 3},
    {OpKind::foreach_sqrt, 1, 0.25, 3},
    {OpKind::neg, 1},
    {OpKind::pow_scalar, 1, 0.25, 3},
    {OpKind::rsqrt, 1, 0.25, 3},
    {OpKind::reciprocal, 1, 0.25, 3},
    {OpKind::clamp_max, 1, 1, 2.5},
    {OpKind::clamp_max, 1, -2.5, 2.5, 1},
    {OpKind::floor, 1},
    {OpKind::log1p, 1, -0.5, 9},
    {OpKind::exp, 1},
    {OpKind::log, 1, 0.1, 9},
    {OpKind::log_sigmoid, 1, -8, 8},
    {OpKind::logaddexp, 2, -8, 8},
    {OpKind::cos, 1, -9, 9},
    {OpKind::sin, 1, -9, 9},
    {OpKind::silu, 1, -8, 8},
    {OpKind::silu_backward, 2, -8, 8},
    {OpKind::gelu, 1},
    {OpKind::gelu, 1, -2, 2, 1},
    {OpKind::gelu_backward, 2},
    {OpKind::gelu_backward, 2, -2, 2, 1},
    {OpKind::relu, 1},
    {OpKind::threshold_backward, 2},
    {OpKind::tanh, 1},
    {OpKind::sigmoid, 1, -8, 8},
    {OpKind::sigmoid_backward, 2, 0.1, 0.9},
    {OpKind::tanh_backward, 2, 0.1, 0.9},
};

void Maker::elementwise() {
  constexpr double kScalar = 1.75;
  for (const Formula& f : kFormulas) {
    for (const DType dtype : kFloats) {
      for (int layout = 0; layout < kLayouts; ++layout) {
        const Sizes sizes = {size(1, 5), size(1, 9), size(1, 40)};
        std::vector<TestTensor> in;
        for (std::size_t i = 0; i < f.inputs; ++i)
          in.push_back(random(dtype, sizes, f.low, f.high, layout));
        add(title(dtype, layout), f.op, in, {like(random(dtype, sizes), dtype)}, {kScalar, {f.flag, 0}});
      }
    }
  }
  for (const DType dtype : kTraining) {
    add("square " + title(dtype), OpKind::pow_scalar, {random(dtype, {77})}, {like(random(dtype, {77}), dtype)},
        {2, {}});
    const TestTensor held = random(dtype, {9, 33});
    add(title(dtype), OpKind::add_inplace, {held, random(dtype, {9, 33})}, {held});
    add(title(dtype), OpKind::div_inplace, {held, random(dtype, {9, 1}, 1, 2)}, {held});
    add(title(dtype), OpKind::masked_fill, {held, random(DType::boolean, {9, 1}, 0, 1.999)}, {like(held, dtype)},
        {-3, {}});
    add(title(dtype), OpKind::mul_inplace, {held, random(dtype, {})}, {held});
    const TestTensor mask = random(DType::boolean, {9, 33}, 0, 1.999);
    add(title(dtype), OpKind::dropout_backward, {held, mask}, {like(held, dtype)}, {0.25, {}});
    add(title(dtype), OpKind::dropout, {held}, {like(held, dtype), like(mask, DType::boolean)}, {0.25, {}});
  }
}

// Every dtype to every other, with what rounding and conversion find hard.
void Maker::conversions() {
  for (int from = 0; from < static_cast<int>(DType::count_); ++from) {
    for (int to = 0; to < static_cast<int>(DType::count_); ++to) {
      const auto a = static_cast<DType>(from), b = static_cast<DType>(to);
      const bool small = b == DType::u8 || a == DType::u8 || a == DType::boolean;
      TestTensor in = random(a, {61}, small ? 0 : -100, a == DType::boolean ? 1.999 : 100);
      if (info(a).floating && info(b).floating) {
        const double hard[] = {0.0,
                               -0.0,
                               65519.0,
                               65520.0,
                               6e-8,
                               1.00390625,
                               1.01171875,
                               3.4e38,
                               std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()};
        for (std::size_t i = 0; i < std::size(hard); ++i)
          in.memory[i] = one_op::rounded_to(a, hard[i]);
      }
      add(title(a) + " to " + title(b), OpKind::to_copy, {in}, {like(in, b)});
    }
  }
}

void Maker::broadcasting() {
  for (const DType dtype : kTraining) {
    const TestTensor whole = random(dtype, {3, 5, 19});
    for (const Sizes& other : {Sizes{}, Sizes{19}, Sizes{5, 1}, Sizes{3, 1, 19}, Sizes{1, 1, 1}}) {
      add("broadcast " + title(dtype), OpKind::mul, {whole, random(dtype, other)}, {like(whole, dtype)});
      add("repeated " + title(dtype), OpKind::clone, {random(dtype, other)}, {like(whole, dtype)});
    }
    add("mixed " + title(dtype), OpKind::mul, {whole, random(DType::f32, {19})}, {like(whole, DType::f32)});
  }
  for (const DType dtype : {DType::f32, DType::f64}) {
    const TestTensor pairs = random(dtype, {2, 3, 5, 14}, -2, 2, 1), turns = random(dtype, {1, 1, 5, 14});
    for (const std::int64_t conjugate : {0, 1})
      add(title(dtype), OpKind::complex_mul, {pairs, turns}, {like(random(dtype, {2, 3, 5, 14}), dtype)},
          {0, {conjugate, 0}});
    add(title(dtype), OpKind::polar, {random(dtype, {1, 5, 7}, -9, 9)}, {like(random(dtype, {1, 5, 14}), dtype)});
  }
  const TestTensor flags = random(DType::boolean, {4, 9}, 0, 1.999), others = random(DType::boolean, {4, 9}, 0, 1.999);
  add("", OpKind::logical_or, {flags, others}, {like(flags, DType::boolean)});
  const TestTensor masked = random(DType::boolean, {4, 1}, 0, 1.999), x = random(DType::f32, {4, 21});
  add("", OpKind::zero_masked_rows, {masked, x}, {like(x, DType::f32)});
  TestTensor scores = random(DType::bf16, {4, 21});
  scores.memory[3] = scores.memory[40] = -std::numeric_limits<double>::infinity();
  add("", OpKind::is_masked, {scores}, {like(scores, DType::boolean)});
  for (const DType dtype : kFloats) {
    const TestTensor mask = random(DType::boolean, {2, 1, 6, 9}, 0, 1.999);
    add("lowest " + title(dtype), OpKind::additive_mask, {mask}, {like(mask, dtype)}, {0, {}});
    add("infinite " + title(dtype), OpKind::additive_mask, {mask}, {like(mask, dtype)}, {1, {}});
  }
  TestTensor labels = ids({50}, 3);
  labels.memory[7] = -100;
  add("", OpKind::not_equal, {labels}, {like(labels, DType::boolean)}, {0, {-100, 0}});
}

void Maker::creation() {
  Trace trace;
  Parameter matrix, norm;
  matrix.name = "model.layers.0.self_attn.q_proj.weight";
  norm.name = "model.norm.weight";
  norm.role = Parameter::Role::norm;
  trace.parameters = {matrix, norm};
  trace.vocab_size = 997;
  for (const DType dtype : kFloats) {
    const TestTensor out = like(random(dtype, {7, 13}), dtype);
    for (const std::int64_t number : {0, 1})
      add(title(dtype), OpKind::load_parameter, {}, {out}, {0, {number, 0}}).trace = trace;
    Trace cut = trace;
    cut.parameters[0].cut = cut_among(3, 1, 39, 1);
    add("cut " + title(dtype), OpKind::load_parameter, {}, {out}).trace = cut;
    add(title(dtype), OpKind::load_values, {}, {out});
    add(title(dtype), OpKind::load_constant, {}, {like(random(dtype, {}), dtype)}, {0.1, {}});
    for (const OpKind op : {OpKind::ones_like, OpKind::zeros, OpKind::zeros_like, OpKind::full, OpKind::eye})
      add(title(dtype), op, {}, {out}, {-1.25, {}});
  }
  const TestTensor integers = like(ids({5, 30}, 2), DType::i64);
  for (const double micro_batch : {0.0, 3.0})
    add("", OpKind::load_tokens, {}, {integers}, {micro_batch, {}}).trace = trace;
  for (const std::uint64_t heads : {8, 12})
    add("", OpKind::alibi_slopes, {}, {like(random(DType::f32, {heads}), DType::f32)});
  add("", OpKind::sinusoids, {}, {like(random(DType::f32, {7, 8}), DType::f32)});
  add("", OpKind::arange, {}, {like(ids({77}, 2), DType::i64)});
  for (const double both_ways : {0.0, 1.0})
    add("", OpKind::relative_buckets, {}, {like(ids({70, 45}, 2), DType::i64)}, {both_ways, {32, 50}});
  add("", OpKind::bookkeeping, {}, {integers});
  add("", OpKind::workspace, {}, {integers});
  for (const char* type : {"default", "linear", "llama3"}) {
    Trace rotary;
    rotary.rope.type = type;
    rotary.rope.factor = 8;
    for (const std::int64_t unscaled : {0, 1})
      add(type, OpKind::load_buffer, {}, {like(random(DType::f32, {64}), DType::f32)}, {500000, {unscaled, 0}}).trace =
          rotary;
  }
  for (const std::int64_t window : {0, 3})
    add("", OpKind::causal_mask, {}, {like(random(DType::boolean, {1, 1, 7, 12}, 0, 1), DType::boolean)},
        {0, {5, window}});
}

void Maker::reductions() {
  for (const DType dtype : kFloats) {
    for (int layout = 0; layout < kLayouts; ++layout) {
      const Sizes sizes = {size(2, 4), size(2, 9), size(40, 300)};
      const TestTensor in = random(dtype, sizes, -2, 2, layout);
      for (const Sizes& kept :
           {Sizes{sizes[0], sizes[1], 1}, Sizes{sizes[2]}, Sizes{}, Sizes{1, sizes[1], sizes[2]}, Sizes{sizes[1], 1}}) {
        const TestTensor out = like(random(dtype, kept), dtype);
        add(title(dtype, layout), OpKind::sum, {in}, {out});
        if (kept.size() == 3 || kept.empty()) add(title(dtype, layout), OpKind::mean, {in}, {out});
      }
      add(title(dtype, layout), OpKind::vector_norm, {in}, {like(random(dtype, {}), dtype)});
      const TestTensor matrix = random(dtype, {sizes[1], sizes[2]}, -2, 2, layout);
      add(title(dtype, layout), OpKind::row_norm, {matrix}, {like(random(dtype, {sizes[1]}), dtype)});
      add(title(dtype, layout), OpKind::argmax, {in}, {like(ids({sizes[0], sizes[1]}, 2), DType::i64)});
    }
  }
  const TestTensor large = random(DType::bf16, {130, 1031});
  add("large", OpKind::vector_norm, {large}, {like(random(DType::bf16, {}), DType::bf16)});
  add("large", OpKind::sum, {large}, {like(random(DType::f32, {}), DType::f32)});
  add("of flags", OpKind::sum, {random(DType::boolean, {700}, 0, 1.999)}, {like(ids({}, 2), DType::i64)});
  const TestTensor counts = ids({4, 31}, 9);
  add("", OpKind::cumsum, {counts}, {like(counts, DType::i64)});
  TestTensor flags = random(DType::boolean, {6, 300}, 0, 1.999);
  std::fill_n(flags.memory.begin(), 600, 1.0);
  add("", OpKind::all, {flags}, {like(random(DType::boolean, {6, 1}, 0, 1), DType::boolean)});
}

void Maker::rows() {
  for (const DType dtype : kFloats) {
    for (int layout = 0; layout < kLayouts; ++layout) {
      const Sizes sizes = {size(1, 3), size(1, 5), size(2, 700)}, column = {sizes[0], sizes[1], 1};
      TestTensor x = random(dtype, sizes, -5, 5, layout);
      const TestTensor g = random(dtype, sizes, -1, 1, layout), out = like(random(dtype, sizes), dtype);
      add(title(dtype, layout), OpKind::softmax_backward, {g, random(dtype, sizes, 0, 0.1)}, {out});
      add(title(dtype, layout), OpKind::log_softmax_backward, {g, random(dtype, sizes, -9, -1)}, {out});
      const DType statistics = dtype == DType::f64 ? DType::f64 : DType::f32;
      const TestTensor mean = like(random(statistics, column), statistics);
      const TestTensor weight = random(dtype, {sizes[2]}), bias = random(dtype, {sizes[2]});
      add(title(dtype, layout), OpKind::layer_norm, {x}, {out, mean, mean}, {1e-5, {}});
      add("weights " + title(dtype, layout), OpKind::layer_norm, {x, weight, bias}, {out, mean, mean}, {1e-5, {}});
      const TestTensor m = random(statistics, column, -0.5, 0.5), r = random(statistics, column, 0.5, 2);
      add(title(dtype, layout), OpKind::layer_norm_backward, {g, x, m, r}, {out});
      const TestTensor of_weight = like(weight, dtype);
      add("weights " + title(dtype, layout), OpKind::layer_norm_backward, {g, x, m, r, weight},
          {out, of_weight, of_weight});
      add(title(dtype, layout), OpKind::rms_norm, {x, weight}, {out, mean}, {1e-5, {}});
      add(title(dtype, layout), OpKind::rms_norm_backward, {g, x, r, weight}, {out, of_weight});
      add("offset " + title(dtype, layout), OpKind::rms_norm, {x, weight}, {out, mean}, {1e-5, {1, 0}});
      add("offset " + title(dtype, layout), OpKind::rms_norm_backward, {g, x, r, weight}, {out, of_weight},
          {0, {1, 0}});
      add("causal " + title(dtype, layout), OpKind::softmax, {x}, {out}, {0.3, {1, 0}});
      add("scaled " + title(dtype, layout), OpKind::softmax_backward, {g, random(dtype, sizes, 0, 0.1)}, {out},
          {0.3, {}});
      if (layout == kDense) x.memory[0] = -std::numeric_limits<double>::infinity();
      add(title(dtype, layout), OpKind::softmax, {x}, {out});
      add(title(dtype, layout), OpKind::log_softmax, {x}, {out});
    }
  }
}

void Maker::moving() {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::u8, DType::i64}) {
    for (int layout = 0; layout < kLayouts; ++layout) {
      const auto part = [&](std::uint64_t n) { return random(dtype, {3, n, 5}, 0, 100, layout); };
      add(title(dtype, layout), OpKind::cat, {part(2), part(9), part(1)}, {like(random(dtype, {3, 12, 5}), dtype)},
          {0, {1, 0}});
      add("last " + title(dtype, layout), OpKind::cat, {part(4), part(4)}, {like(random(dtype, {3, 4, 10}), dtype)},
          {0, {-1, 0}});
    }
    add(title(dtype), OpKind::stack, {random(dtype, {}, 0, 9), random(dtype, {}, 0, 9)},
        {like(random(dtype, {2}), dtype)});
  }
  add("", OpKind::pad_right, {ids({3, 17}, 50)}, {like(ids({3, 20}, 2), DType::i64)}, {0, {-100, 0}});
}

void Maker::indexing() {
  for (const DType dtype : kFloats) {
    for (int layout = 0; layout < kLayouts; ++layout) {
      const TestTensor table = random(dtype, {11, 37}, -1, 1, layout), tokens = ids({2, 9}, 11);
      add(title(dtype, layout), OpKind::embedding, {table, tokens}, {like(random(dtype, {2, 9, 37}), dtype)});
      const TestTensor gradient = random(dtype, {2, 9, 37}, -1, 1, layout);
      add(title(dtype, layout), OpKind::embedding_backward, {gradient, tokens}, {like(random(dtype, {11, 37}), dtype)});
    }
    TestTensor order = ids({6}, 1);
    order.memory = {4, 0, 7, 2, 8, 5};
    add(title(dtype), OpKind::index_rows, {random(dtype, {9, 5, 3}), order}, {like(random(dtype, {6, 5, 3}), dtype)});
    add(title(dtype), OpKind::index_rows_backward, {random(dtype, {6, 5, 3}), order},
        {like(random(dtype, {9, 5, 3}), dtype)});
    add("numbers " + title(dtype), OpKind::index_rows, {random(dtype, {9}), order}, {like(random(dtype, {6}), dtype)});
  }
  const TestTensor keys = random(DType::i8, {300}, 0, 1.999);
  add("", OpKind::sort_true_first, {keys}, {like(keys, DType::i8), like(ids({300}, 2), DType::i64)});
}

void Maker::products() {
  for (const DType dtype : kFloats) {
    for (int layout = 0; layout < kLayouts; ++layout) {
      const std::uint64_t m = size(1, 150), n = size(1, 150), k = size(1, 200);
      const TestTensor a = random(dtype, {m, k}, -1, 1, layout), b = random(dtype, {k, n}, -1, 1, layout);
      const TestTensor out = like(random(dtype, {m, n}), dtype);
      add(title(dtype, layout), OpKind::mm, {a, b}, {out});
      add(title(dtype, layout), OpKind::addmm, {random(dtype, {n}), a, b}, {out});
      const TestTensor x = random(dtype, {3, m, 20}, -1, 1, layout), y = random(dtype, {3, 20, n}, -1, 1, layout);
      add(title(dtype, layout), OpKind::baddbmm, {random(dtype, {3, 1, n}), x, y},
          {like(random(dtype, {3, m, n}), dtype)}, {0.25, {}});
      add(title(dtype, layout), OpKind::bmm, {x, y}, {like(random(dtype, {3, m, n}), dtype)});
    }
    add("across " + title(dtype), OpKind::mm,
        {one_op::transpose(random(dtype, {40, 70}), 0, 1), random(dtype, {40, 65})},
        {like(random(dtype, {70, 65}), dtype)});
  }
  add("mixed", OpKind::mm, {random(DType::bf16, {33, 48}), random(DType::f32, {48, 21})},
      {like(random(DType::f32, {33, 21}), DType::f32)});
  for (OpCase& c : cases) {
    // fp64 sums in another order; the fp16 results' own rounding.
    if ((c.op == OpKind::mm || c.op == OpKind::addmm || c.op == OpKind::bmm || c.op == OpKind::baddbmm) &&
        c.out[0].dtype == DType::f64) {
      c.tolerance = 1e-22;
    }
  }
}

void Maker::attention_case(OpKind forward, OpKind backward, DType dtype, const Sizes& q, std::uint64_t kv_heads,
                           std::uint64_t keys, bool biased) {
  const std::uint64_t b = q[0], heads = q[1], s = q[2], d = q[3];
  // [b,s,heads,d] in memory, as a projection leaves it.
  const auto head_tensor = [&](std::uint64_t n, std::uint64_t length) {
    return one_op::transpose(random(dtype, {b, length, n, d}, -1.5, 1.5), 1, 2);
  };
  const TestTensor query = head_tensor(heads, s), key = head_tensor(kv_heads, keys),
                   value = head_tensor(kv_heads, keys);
  std::vector<TestTensor> in = {query, key, value};
  TestTensor bias = random(dtype, {b, 1, s, keys}, -1, 1);
  for (std::uint64_t i = 0; i < bias.memory.size(); ++i) {
    const std::uint64_t row = i / keys % s, column = i % keys;
    if (column > row + keys - s || column + 5 <= row + keys - s)
      bias.memory[i] = -std::numeric_limits<double>::infinity();
  }
  if (biased) in.push_back(bias);
  const TestTensor out = like(head_tensor(heads, s), dtype);
  const TestTensor lse = like(random(DType::f32, {b, heads, s}), DType::f32);
  const TestTensor nothing = like(random(DType::u8, {8}, 0, 1), DType::u8);
  const std::string name = title(dtype) + " d" + std::to_string(d) + " s" + std::to_string(s);
  OpCase& c = add(name, forward, in, {out, lse, nothing, nothing}, {0, {}});
  c.compared = 2;
  if (keys != s) return;
  const OpResult result = on_host(c);
  std::vector<TestTensor> back = {head_tensor(heads, s), query, key, value, result.out[0], result.out[1]};
  if (biased) back.push_back(bias);
  std::vector<TestTensor> gradients = {like(query, dtype), like(key, dtype), like(value, dtype)};
  if (backward == OpKind::flash_attention_backward) {
    const std::uint64_t rows = round_up(s, 128);
    gradients.push_back(like(random(DType::f32, {b, heads, rows}), DType::f32));
    gradients.push_back(like(random(DType::f32, {b, rows, heads, round_up(d, 32)}), DType::f32));
  }
  OpCase& g = add(name, backward, back, gradients, {0, {}});
  g.tolerance = dtype == DType::f32 ? 1e-10 : 1e-4;
  g.compared = 3;
}

// Two images, each in windows of up to 16 places.
void Maker::packed_attention(DType dtype, const WindowGrid& grid) {
  const auto head_tensor = [&] { return one_op::transpose(random(dtype, {1, 120, 3, 40}, -1.5, 1.5), 1, 2); };
  const TestTensor q = head_tensor(), k = head_tensor(), v = head_tensor(), ends = random(DType::i32, {13}, 0, 9);
  const TestTensor lse = like(random(DType::f32, {1, 3, 120}), DType::f32);
  const TestTensor nothing = like(random(DType::u8, {16}, 0, 1), DType::u8);
  OpCase& c = add(title(dtype), OpKind::packed_attention, {q, k, v, ends}, {like(q, dtype), lse, nothing}, grid.attr());
  c.compared = 2;
  const OpResult result = on_host(c);
  OpCase& g =
      add(title(dtype), OpKind::packed_attention_backward, {head_tensor(), q, k, v, result.out[0], result.out[1]},
          {like(q, dtype), like(k, dtype), like(v, dtype)}, grid.attr());
  g.tolerance = dtype == DType::f32 ? 1e-10 : 1e-4;
}

void Maker::attention() {
  constexpr OpKind kForward[] = {OpKind::flash_attention, OpKind::cudnn_attention, OpKind::efficient_attention,
                                 OpKind::own_attention};
  constexpr OpKind kBackward[] = {OpKind::flash_attention_backward, OpKind::cudnn_attention_backward,
                                  OpKind::efficient_attention_backward, OpKind::own_attention_backward};
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    std::size_t kind = 0;
    for (const std::uint64_t d :
         {std::uint64_t{64}, std::uint64_t{96}, std::uint64_t{128}, std::uint64_t{256}, size(1, 60)}) {
      const std::uint64_t s = size(1, 150);
      const bool grouped = kForward[kind] != OpKind::efficient_attention;
      attention_case(kForward[kind], kBackward[kind], dtype, {2, 4, s, d}, grouped ? 2 : 4, s, false);
      kind = (kind + 1) % std::size(kForward);
    }
    attention_case(OpKind::flash_attention, OpKind::flash_attention_backward, dtype, {1, 4, 3, 32}, 1, 71, false);
    attention_case(OpKind::flash_attention, OpKind::flash_attention_backward, dtype, {1, 2, 1, 64}, 2, 130, false);
  }
}

void Maker::attention_with_bias() {
  for (const DType dtype : kTraining)
    attention_case(OpKind::efficient_attention, OpKind::efficient_attention_backward, dtype, {2, 2, size(1, 140), 40},
                   2, 140, true);
  const std::uint64_t s = size(70, 140);
  attention_case(OpKind::efficient_attention, OpKind::efficient_attention_backward, DType::f32, {2, 2, s, 40}, 2, s,
                 true);
}

void Maker::losses() {
  for (const DType dtype : kTraining) {
    const std::uint64_t tokens = size(2, 400), classes = size(2, 90);
    TestTensor targets = ids({tokens}, classes);
    targets.memory[1] = -100;
    const TestTensor x = random(dtype, {tokens, classes}, -9, -0.1);
    const TestTensor scalar = like(random(dtype, {}), dtype);
    for (const std::int64_t is_sum : {0, 1}) {
      add(title(dtype), OpKind::nll_loss, {x, targets}, {scalar, scalar}, {0, {is_sum, 0}});
      add(title(dtype), OpKind::nll_loss_backward, {random(dtype, {}), targets, random(dtype, {}, 5, 9)},
          {like(x, dtype)}, {0, {is_sum, 0}});
    }
    const TestTensor logits = random(dtype, {tokens, classes}, -4, 4);
    add(title(dtype), OpKind::liger_cross_entropy, {logits, targets, targets},
        {logits, like(random(DType::f32, {tokens}), DType::f32)});
  }
}

void Maker::fused() {
  for (const DType dtype : kFloats) {
    for (int layout = 0; layout < kLayouts; ++layout) {
      const Sizes sizes = {size(1, 3), size(1, 5), size(2, 700)}, column = {sizes[0], sizes[1], 1};
      const auto whole = [&] { return random(dtype, sizes, -2, 2, layout); };
      const DType statistics = dtype == DType::f64 ? DType::f64 : DType::f32;
      const TestTensor weight = random(dtype, {sizes[2]}), rstd = random(statistics, column, 0.5, 2);
      const TestTensor residual = whole(), x = whole(), gradient = whole(), past = whole(), out = like(whole(), dtype);
      add(title(dtype, layout), OpKind::add_rms_norm, {residual, x, weight}, {out, like(rstd, statistics), x},
          {1e-5, {}});
      add(title(dtype, layout), OpKind::add_rms_norm_backward, {gradient, x, rstd, weight, past},
          {past, like(weight, dtype)});
      add("frozen " + title(dtype, layout), OpKind::add_rms_norm_backward, {gradient, x, rstd, weight, past}, {past});
      add("last " + title(dtype, layout), OpKind::add_rms_norm_backward, {gradient, x, rstd, weight},
          {out, like(weight, dtype)});
      const TestTensor gate = random(dtype, sizes, -8, 8, layout);
      add(title(dtype, layout), OpKind::swiglu, {gate, x}, {out});
      add(title(dtype, layout), OpKind::swiglu_backward, {gradient, gate, x}, {gate, x});
      add("apart " + title(dtype, layout), OpKind::swiglu_backward, {gradient, gate, x}, {out, out});
      add("gelu " + title(dtype, layout), OpKind::swiglu, {gate, x}, {out}, {0, {1, 0}});
      add("gelu " + title(dtype, layout), OpKind::swiglu_backward, {gradient, gate, x}, {gate, x}, {0, {1, 0}});
      const std::uint64_t half = size(1, 40);
      const TestTensor heads = random(dtype, {2, size(1, 90), 3, 2 * half}, -2, 2, layout);
      for (const std::int64_t back : {0, 1}) {
        add(title(dtype, layout), OpKind::rope, {heads, random(DType::f32, {half}, 1e-5, 1)}, {heads}, {0, {back, 0}});
      }
    }
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    const std::uint64_t tokens = size(2, 90), classes = size(300, 900);
    TestTensor targets = ids({tokens}, classes);
    targets.memory[1] = -100;
    const DType precise = dtype == DType::f64 ? DType::f64 : DType::f32;
    const TestTensor logits = random(dtype, {tokens, classes}, -4, 4);
    add(title(dtype), OpKind::cross_entropy_inplace, {logits, targets, targets},
        {logits, like(random(precise, {tokens}), precise)});
  }
}

void Maker::cut_losses() {
  for (const DType dtype : kTraining) {
    const std::uint64_t b = 2, s = size(40, 60), h = size(20, 300), vocab = size(60, 200), tokens = b * s;
    TestTensor labels = ids({b, s}, vocab), flat = labels;
    labels.memory[5] = flat.memory[5] = -100;
    flat.sizes = {tokens};
    flat.strides = {1};
    std::vector<double> places;
    for (std::uint64_t t = 0; t < tokens; ++t) {
      if (t % s + 1 < s && labels.memory[t + 1] != -100) places.push_back(static_cast<double>(t));
    }
    const std::uint64_t n = places.size();
    const TestTensor positions = one_op::dense(DType::i64, {n}, places);
    const TestTensor e = random(dtype, {tokens, h}, -0.3, 0.3), c = random(dtype, {vocab, h}, -0.3, 0.3);
    const TestTensor column = like(random(DType::f32, {n}), DType::f32);
    add(title(dtype), OpKind::cut_positions, {labels}, {like(positions, DType::i64)});
    OpCase& lse = add(title(dtype), OpKind::cut_logsumexp, {e, c, positions},
                      {column, like(random(DType::f32, {vocab}), DType::f32)});
    const TestTensor total = on_host(lse).out[0];
    add(title(dtype), OpKind::cut_neg_dot, {e, c, positions, flat}, {column});
    const std::vector<TestTensor> in = {random(DType::f32, {}), e, c, total, positions, flat};
    add(title(dtype), OpKind::cut_backward, in, {like(e, dtype), like(c, dtype)}, {0, {1, 1}});
    add("de " + title(dtype), OpKind::cut_backward, in, {like(e, dtype)}, {0, {1, 0}});
    add("dc " + title(dtype), OpKind::cut_backward, in, {like(c, dtype)}, {0, {0, 1}});
  }
}

void Maker::optimizers() {
  for (const DType dtype : kTraining) {
    for (const DType state : {dtype, DType::f32}) {
      const Sizes sizes = {size(1, 9), size(1, 90)};
      const TestTensor g = random(dtype, sizes), p = random(dtype, sizes), m = random(state, sizes, -1, 1);
      const TestTensor v = random(state, sizes, 0.01, 1), root = random(state, sizes, 0.1, 1);
      TestTensor step = random(DType::f32, {});
      step.memory[0] = 6;
      add(title(state), OpKind::adamw, {g}, {p, m, v, step});
      add("counted " + title(state), OpKind::adamw, {g}, {p, m, v}, {0, {7, 0}});
      add(title(state), OpKind::adamw_moments, {g}, {m, v});
      for (const std::int64_t divided : {0, 1})
        add(title(state), OpKind::adamw_update, {m, root}, {p}, {0, {7, divided}});
      add(title(state), OpKind::momentum_update, {g}, {m});
      add(title(state), OpKind::sgd_update, {m}, {p});
    }
  }
}

void Maker::routing() {
  const std::uint64_t tokens = size(3, 90), experts = size(9, 20), chosen = 3, n = tokens * chosen;
  for (const DType dtype : kTraining) {
    TestTensor scores = random(dtype, {tokens, experts}, 0, 1);
    scores.memory[1] = scores.memory[4];  // of equals the first
    const TestTensor places = like(ids({tokens, chosen}, 2), DType::i64);
    OpCase& best = add(title(dtype), OpKind::topk, {scores}, {like(random(dtype, {tokens, chosen}), dtype), places},
                       {0, {static_cast<std::int64_t>(chosen), 0}});
    const TestTensor found = on_host(best).out[1];
    add(title(dtype), OpKind::topk_backward, {random(dtype, {tokens, chosen}), found}, {like(scores, dtype)});
    add(title(dtype), OpKind::gather_backward, {random(dtype, {tokens, chosen}), found}, {like(scores, dtype)});
    add(title(dtype), OpKind::gather, {scores, found}, {like(random(dtype, {tokens, chosen}), dtype)});
    add(title(dtype), OpKind::scatter_value, {found}, {scores}, {2.5, {}});
    add(title(dtype), OpKind::scatter_source, {random(dtype, {tokens, chosen}), found}, {scores});
    add(title(dtype), OpKind::amax, {scores}, {like(random(dtype, {tokens, 1}), dtype)});
    add(title(dtype), OpKind::max_last, {scores},
        {like(random(dtype, {tokens, 1}), dtype), like(ids({tokens, 1}, 2), DType::i64)}, {0, {1, 0}});
    for (const std::int64_t both : {0, 1})
      add(title(dtype), OpKind::outside, {random(dtype, {tokens, experts})}, {like(scores, DType::boolean)},
          {1.25, {both, 0}});
    const std::uint64_t groups = 5, rows = size(70, 200), k = size(5, 70), width = size(5, 90);
    const TestTensor ends = one_op::dense(DType::i32, {groups}, {3, 3, 68, 69, static_cast<double>(rows)});
    add("rows " + title(dtype), OpKind::grouped_mm,
        {random(dtype, {rows, k}, -1, 1), random(dtype, {groups, k, width}, -1, 1), ends},
        {like(random(dtype, {rows, width}), dtype)});
    add("depth " + title(dtype), OpKind::grouped_mm,
        {one_op::transpose(random(dtype, {rows, k}, -1, 1), 0, 1), random(dtype, {rows, width}, -1, 1), ends},
        {like(random(dtype, {groups, k, width}), dtype)});
    const TestTensor held = random(dtype, {9, 5});
    TestTensor order = ids({4}, 1);
    order.memory = {7, 0, 3, 8};
    add(title(dtype), OpKind::index_put, {random(dtype, {4, 5}), order}, {held});
  }
  const TestTensor keys = ids({n}, experts);
  add("", OpKind::sort, {keys}, {like(keys, DType::i64), like(keys, DType::i64)});
  add("", OpKind::floor_divide, {keys}, {like(keys, DType::i64)}, {0, {3, 0}});
  add("", OpKind::remainder, {keys}, {like(keys, DType::i64)}, {0, {3, 0}});
  add("", OpKind::experts_in_turn, {}, {like(ids({12, chosen}, 2), DType::i64)}, {0, {5, 3}});
  for (const OpKind op : {OpKind::at_least, OpKind::less})
    add("", op, {keys}, {like(keys, DType::boolean)}, {0, {4, 0}});
  TestTensor numbers = random(DType::i32, {n}, 0, static_cast<double>(experts) + 2);
  add("of places", OpKind::gather, {ids({4, experts}, 50), ids({4, chosen}, experts)},
      {like(ids({4, chosen}, 2), DType::i64)});
  const TestTensor flags = random(DType::boolean, {tokens, experts}, 0, 1.999);
  add("", OpKind::logical_not, {flags}, {like(flags, DType::boolean)});
  add("", OpKind::histc, {numbers}, {like(random(DType::i32, {experts}, 0, 1), DType::i32)});
}

void Maker::images() {
  const auto fresh = [&](DType dtype, const Sizes& sizes) { return like(random(dtype, sizes, 0, 1), dtype); };
  TestTensor mask = random(DType::boolean, {3, 10, 1}, 0, 1);
  for (std::uint64_t i = 0; i < mask.numel(); ++i)
    mask.memory[i] = i % 3 == 1 || i > 24 ? 1 : 0;
  const auto held = static_cast<std::uint64_t>(std::count(mask.memory.begin(), mask.memory.end(), 1.0));
  for (const DType dtype : kFloats) {
    for (int layout = 0; layout < kLayouts; ++layout) {
      const TestTensor pixels = random(dtype, {2, 3, 9, 13}, -1, 1, layout), filters = random(dtype, {37, 3, 4, 4});
      const TestTensor gradient = random(dtype, {2, 37, 2, 3}, -1, 1, layout);
      add(title(dtype, layout), OpKind::convolution, {pixels, filters}, {fresh(dtype, {2, 37, 2, 3})});
      add("bias " + title(dtype, layout), OpKind::convolution, {pixels, filters, random(dtype, {37})},
          {fresh(dtype, {2, 37, 2, 3})});
      add(title(dtype, layout), OpKind::convolution_backward, {gradient, pixels, filters},
          {fresh(dtype, {37, 3, 4, 4}), fresh(dtype, {37})});
      const TestTensor words = random(dtype, {3, 10, 33}, -1, 1, layout),
                       seen = random(dtype, {held, 33}, -1, 1, layout);
      add(title(dtype, layout), OpKind::masked_scatter, {words, mask, seen}, {fresh(dtype, {3, 10, 33})});
      add(title(dtype, layout), OpKind::masked_select, {words, mask}, {fresh(dtype, {held, 33})});
      const TestTensor squares = random(dtype, {2, 5, 9, 7}, -1, 1, layout),
                       means = random(dtype, {2, 5, 3, 2}, -1, 1, layout);
      add(title(dtype, layout), OpKind::avg_pool, {squares}, {fresh(dtype, {2, 5, 3, 2})}, {0, {3, 0}});
      add(title(dtype, layout), OpKind::avg_pool_backward, {means}, {fresh(dtype, {2, 5, 9, 7})}, {0, {3, 0}});
    }
  }
  for (const DType dtype : kFloats) {
    for (int layout = 0; layout < kLayouts; ++layout)
      add(title(dtype, layout), OpKind::unfold, {random(dtype, {2, 3, 8, 12}, -1, 1, layout)},
          {fresh(dtype, {2, 48, 6})}, {0, {4, 0}});
  }
  const WindowGrid ragged{.rows = 3, .columns = 5, .side = 2, .unit = 4};
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    packed_attention(dtype, ragged);
  add("", OpKind::image_turns, {}, {fresh(DType::f32, {1, 17, 1, 8})}, {10000, {4, 0}});
  for (const double back : {0.0, 1.0}) {
    Attr attr = ragged.attr();
    attr.x = back;
    add("", OpKind::window_order, {}, {fresh(DType::i64, {30})}, attr);
  }
  const TestTensor numbers = ids({3, 10}, 3);
  add("", OpKind::equal, {numbers}, {like(numbers, DType::boolean)}, {0, {2, 0}});
  TestTensor flags = mask;
  flags.sizes = {3, 10};
  flags.strides = {10, 1};
  add("", OpKind::image_blocks, {flags}, {fresh(DType::i64, {3, 10})});
  for (const std::int64_t window : {0, 3})
    add("blocks", OpKind::causal_mask, {numbers}, {fresh(DType::boolean, {3, 1, 10, 10})}, {0, {0, window}});
  Trace trace;
  trace.vocab_size = 11;
  add("images", OpKind::load_tokens, {}, {like(ids({2, 30}, 2), DType::i64)}, {0, {(std::int64_t{2} << 32) + 7, 5}})
      .trace = trace;
}

void Maker::quantisation() {
  Trace trace;
  Parameter matrix;
  matrix.name = "model.layers.3.mlp.up_proj.weight";
  trace.parameters = {matrix};
  const std::uint64_t rows = 70, columns = 320, count = rows * columns, blocks = (count + 63) / 64;
  const std::uint64_t groups = (blocks + 255) / 256;
  const Attr attr = {0, {0, static_cast<std::int64_t>(count)}};
  const auto fresh = [&](DType dtype, const Sizes& sizes) { return like(random(dtype, sizes, 0, 1), dtype); };
  const TestTensor packed = fresh(DType::u8, {count / 2, 1}), code = fresh(DType::f32, {16});
  const TestTensor absmax = fresh(DType::f32, {blocks}), map = fresh(DType::f32, {256});
  OpCase& plain = add("plain", OpKind::quantise, {}, {packed, absmax, code}, attr);
  plain.trace = trace;
  const OpResult weight = on_host(plain);
  OpCase& nested =
      add("nested", OpKind::quantise, {},
          {packed, fresh(DType::u8, {blocks}), code, fresh(DType::f32, {}), fresh(DType::f32, {groups}), map}, attr);
  nested.trace = trace;
  const OpResult w = on_host(nested);
  add("", OpKind::dequantise_absmax, {w.out[1], w.out[4], w.out[5]}, {absmax});
  for (const DType dtype : kTraining) {
    add(title(dtype), OpKind::dequantise, {weight.out[0], weight.out[1], weight.out[2]},
        {fresh(dtype, {rows, columns})});
    const TestTensor x = random(dtype, {2, 3, columns}, -1, 1), y = fresh(dtype, {2, 3, rows});
    add(title(dtype), OpKind::gemm_4bit, {x, weight.out[0], weight.out[1], weight.out[2]}, {y});
    add("bias " + title(dtype), OpKind::gemm_4bit,
        {x, weight.out[0], weight.out[1], weight.out[2], random(dtype, {rows})}, {y});
    add("nested " + title(dtype), OpKind::gemm_4bit, {x, w.out[0], w.out[1], w.out[2], w.out[3], w.out[4], w.out[5]},
        {y});
  }
}

// Of three ranks: parameters of 5 rows and of 7 elements have shards of 2 rows and of 3 elements, cut flat of 7 and 3.
void Maker::collectives() {
  constexpr Attr kRows{0, {2, 0}}, kFlat{0, {2, 1}};
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const TestTensor matrix = random(dtype, {5, 4}), reversed = random(dtype, {5, 4}, -1, 1, kReversed);
    const TestTensor row = random(dtype, {7}), other = random(DType::f32, {2, 3});
    const std::string type = title(dtype);
    add(type, OpKind::gather_copy_in, {other, random(dtype, {5})}, {random(dtype, {33})});
    add(type, OpKind::all_gather, {random(dtype, {2, 2})}, {like(random(dtype, {12}), dtype)});
    add("in place " + type, OpKind::all_gather, {}, {random(dtype, {12})});
    add(type, OpKind::gather_copy_out, {random(dtype, {3 * 13})}, {like(matrix, dtype), like(row, dtype)}, kRows);
    add("flat " + type, OpKind::gather_copy_out, {random(dtype, {3 * 12})}, {like(matrix, dtype), like(row, dtype)},
        kFlat);
    const TestTensor parts = random(DType::f32, {33}), flat_parts = random(dtype, {30});
    add(type, OpKind::reduce_copy_in, {reversed, row}, {like(parts, DType::f32)});
    add("flat " + type, OpKind::reduce_copy_in, {matrix, row}, {like(flat_parts, dtype)}, kFlat);
    add(type, OpKind::reduce_scatter, {random(dtype, {12})}, {like(random(dtype, {4}), dtype)});
    add(type, OpKind::all_to_all, {random(dtype, {12})}, {like(random(dtype, {12}), dtype)});
    const TestTensor held = random(dtype, {9});
    add(type, OpKind::all_reduce, {held}, {held});
    add(type, OpKind::send, {held}, {}, {0, {2, 0}});
    add(type, OpKind::receive, {}, {like(held, dtype)}, {0, {0, 0}});
  }
}

}  // namespace

std::vector<OpCase> all_cases(std::uint32_t seed) {
  Maker maker(seed);
  maker.elementwise();
  maker.conversions();
  maker.broadcasting();
  maker.creation();
  maker.reductions();
  maker.rows();
  maker.moving();
  maker.indexing();
  maker.products();
  maker.attention();
  maker.attention_with_bias();
  maker.losses();
  maker.cut_losses();
  maker.fused();
  maker.optimizers();
  maker.routing();
  maker.images();
  maker.quantisation();
  maker.collectives();
  return std::move(maker.cases);
}

}  // namespace ledger::op_cases
