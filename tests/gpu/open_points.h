// open_points.h - what could not be known without a GPU, each measured, told as a number and held against a bound.
#pragma once

#include <string>

#include "core/base/json.h"
#include "probe/measured_device.h"

namespace ledger {

class OpenPoints {
 public:
  OpenPoints(JsonWriter& out, MeasuredDevice& gpu) : out_(out), gpu_(gpu) {}
  // Writes the array "points"; whether all of them hold.
  bool check();

 private:
  // One point: what was seen, in `unit`, and between which bounds it was expected.
  void tell(const std::string& name, double seen, const char* unit, double least, double most);
  void fail(const std::string& name, const std::string& why);

  void segments();
  void memory_calls();
  void pool();
  void products();
  void attention();
  void experts();

  JsonWriter& out_;
  MeasuredDevice& gpu_;
  double product_tflops_ = 0;
  bool good_ = true;
};

}  // namespace ledger
