#include <cmath>
#include <string>

#include "core/base/dtype.h"
#include "core/base/float_formats.h"
#include "core/lesson/lesson.h"

namespace ledger {
namespace {

constexpr const char* kClasses[] = {"zero", "subnormal", "normal", "infinity", "nan", "code"};
constexpr std::uint64_t kMostSteps = 100000;
constexpr std::size_t kMostGradients = 64;
constexpr std::size_t kMostDims = 8;

Problem missing(const char* key, const char* expected) {
  return {ProblemCode::missing_key, key, "", expected, ""};
}

Result<double> real(const Json& request, const char* key) {
  const Json* found = request.find(key);
  if (found == nullptr) return missing(key, "number");
  const auto value = found->as_real();
  if (!value) return Problem{ProblemCode::wrong_type, key, found->brief(), "number", ""};
  return *value;
}

std::string names() {
  std::string all;
  for (std::size_t i = 0; i < static_cast<std::size_t>(NumberFormat::count_); ++i) {
    all += all.empty() ? "" : "|";
    all += info(static_cast<NumberFormat>(i)).name;
  }
  return all;
}

Result<NumberFormat> format_of(const Json& request) {
  const Json* found = request.find("format");
  if (found == nullptr) return missing("format", names().c_str());
  const auto format = number_format(found->as_string().value_or(""));
  if (!format) return Problem{ProblemCode::not_one_of, "format", found->brief(), names(), ""};
  return *format;
}

struct Written {
  std::uint32_t bits;
  double asked;
};

// The pattern itself, or the value to be rounded.
Result<Written> written(const Json& request, NumberFormat format) {
  const Json* found = request.find("bits");
  if (found == nullptr) {
    const Result<double> value = real(request, "value");
    if (!value.ok()) return value.problem();
    return Written{round_to(format, value.value()), value.value()};
  }
  const std::uint64_t end = std::uint64_t{1} << info(format).bits();
  const auto bits = found->as_unsigned();
  if (!bits || *bits >= end) {
    return Problem{ProblemCode::out_of_range, "bits", found->brief(), "0.." + std::to_string(end - 1), ""};
  }
  return Written{static_cast<std::uint32_t>(*bits), value_of(format, static_cast<std::uint32_t>(*bits))};
}

void optional_member(JsonWriter& out, const char* name, const std::optional<double>& value) {
  out.key(name);
  if (value) {
    out.value(*value);
  } else {
    out.null();
  }
}

}  // namespace

Result<std::string> formats_lesson(const Json&) {
  JsonWriter out;
  out.begin_object().key("formats").begin_array();
  for (std::size_t i = 0; i < static_cast<std::size_t>(NumberFormat::count_); ++i) {
    const auto format = static_cast<NumberFormat>(i);
    const FormatInfo& f = info(format);
    const Range range = range_of(format);
    out.begin_object().member("name", f.name).member("sign_bits", f.sign_bits).member("exponent_bits", f.exponent_bits);
    out.member("mantissa_bits", f.mantissa_bits).member("bias", f.bias()).member("infinities", f.infinities);
    out.member("stored_bits", f.stored_bits).member("largest", range.largest);
    out.member("smallest_normal", range.smallest_normal).member("smallest", range.smallest);
    out.member("epsilon", range.epsilon).end_object();
  }
  out.end_array().end_object();
  return out.take();
}

Result<std::string> number_lesson(const Json& request) {
  const Result<NumberFormat> format = format_of(request);
  if (!format.ok()) return format.problem();
  const Result<Written> number = written(request, format.value());
  if (!number.ok()) return number.problem();
  const auto [bits, asked] = number.value();
  const double value = value_of(format.value(), bits);
  const Neighbours near = neighbours(format.value(), bits);
  JsonWriter out;
  out.begin_object().member("format", info(format.value()).name).member("bits", bits).member("asked", asked);
  out.member("value", value).member("error", value - asked).member("negative", std::signbit(value));
  out.member("class", kClasses[static_cast<std::size_t>(class_of(format.value(), bits))]);
  optional_member(out, "below", near.below);
  optional_member(out, "above", near.above);
  out.member("ulp", near.ulp).end_object();
  return out.take();
}

// The update is made in high precision; the weight is stored after each step, as a training step with weights in that
// format does it.
Result<std::string> update_lesson(const Json& request) {
  const Result<double> weight = real(request, "weight"), update = real(request, "update");
  if (!weight.ok()) return weight.problem();
  if (!update.ok()) return update.problem();
  const Json* asked = request.find("steps");
  const std::uint64_t steps = asked == nullptr ? 1 : asked->as_unsigned().value_or(0);
  if (steps < 1 || steps > kMostSteps) {
    return Problem{ProblemCode::out_of_range, "steps", asked->brief(), "1.." + std::to_string(kMostSteps), ""};
  }
  JsonWriter out;
  out.begin_object().member("exact", weight.value() + static_cast<double>(steps) * update.value()).key("rows");
  out.begin_array();
  for (const NumberFormat format : {NumberFormat::fp32, NumberFormat::tf32, NumberFormat::bf16, NumberFormat::fp16,
                                    NumberFormat::fp8_e4m3, NumberFormat::fp8_e5m2}) {
    const double start = through(format, weight.value());
    double now = start;
    for (std::uint64_t i = 0; i < steps; ++i)
      now = through(format, now + update.value());
    const Neighbours near = neighbours(format, round_to(format, start));
    out.begin_object().member("format", info(format).name).member("start", start);
    out.member("once", through(format, start + update.value())).member("after", now).member("moved", now != start);
    out.member("half_ulp", near.ulp / 2).end_object();
  }
  out.end_array().end_object();
  return out.take();
}

// GradScaler: the loss is multiplied, so every gradient is; one that overflows skips the step and halves the scale.
Result<std::string> scaling_lesson(const Json& request) {
  const Result<double> scale = real(request, "scale");
  if (!scale.ok()) return scale.problem();
  const Json* gradients = request.find("gradients");
  if (gradients == nullptr || gradients->items().empty()) return missing("gradients", "array");
  if (gradients->items().size() > kMostGradients || !(scale.value() > 0)) {
    return Problem{ProblemCode::out_of_range, "gradients, scale", "", "1..64, > 0", ""};
  }
  bool skipped = false;
  JsonWriter out;
  out.begin_object().member("scale", scale.value()).key("rows").begin_array();
  for (const Json& item : gradients->items()) {
    const auto gradient = item.as_real();
    if (!gradient) return Problem{ProblemCode::wrong_type, "gradients", item.brief(), "number", ""};
    const double held = through(NumberFormat::fp16, *gradient * scale.value());
    skipped = skipped || !std::isfinite(held);
    out.begin_object().member("gradient", *gradient).member("fp16", through(NumberFormat::fp16, *gradient));
    out.member("bf16", through(NumberFormat::bf16, *gradient)).member("scaled", held);
    out.member("overflow", !std::isfinite(held)).member("unscaled", held / scale.value()).end_object();
  }
  out.end_array().member("skipped", skipped).member("next_scale", skipped ? scale.value() / 2 : scale.value());
  out.end_object();
  return out.take();
}

Result<std::string> tensor_lesson(const Json& request) {
  const Json* shape = request.find("shape");
  if (shape == nullptr || shape->items().empty() || shape->items().size() > kMostDims) return missing("shape", "array");
  std::uint64_t elements = 1;
  for (const Json& item : shape->items()) {
    const auto size = item.as_unsigned();
    if (!size) return Problem{ProblemCode::wrong_type, "shape", item.brief(), "integer", ""};
    elements = times(elements, *size);
  }
  JsonWriter out;
  out.begin_object().member("elements", elements).key("rows").begin_array();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i8}) {
    out.begin_object().member("dtype", info(dtype).name).member("element_bytes", element_bytes(dtype));
    out.member("bytes", times(elements, element_bytes(dtype))).end_object();
  }
  out.end_array().end_object();
  if (is_overflow(times(elements, 4))) return Problem{ProblemCode::overflow, "shape", "", "", ""};
  return out.take();
}

}  // namespace ledger
