// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "ir/ir.h"

namespace imbrex::ir {

int64_t Type::elements() const {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i) out += ", ";
    out += shape[i] == kDynamic ? "?" : std::to_string(shape[i]);
  }
  return out + "]";
}

std::string Type::to_string() const {
  std::string_view word;
  switch (kind) {
    case TypeKind::kScalar:
      return std::string(dtype.name());
    case TypeKind::kPointer:
      return fmt::format("ptr<{}>", dtype.name());
    case TypeKind::kBarrier:
      return shape.empty() ? "barrier" : "barrier" + shape_text(shape);
    case TypeKind::kTensorMap:
      return "map";
    case TypeKind::kVariable:
      word = "var";
      break;
    case TypeKind::kRegister:
      word = "register";
      break;
    case TypeKind::kShared:
      word = "shared";
      break;
    case TypeKind::kGlobal:
      word = "global";
      break;
    case TypeKind::kTensorMemory:
      word = "tmem";
      break;
  }
  std::string out = fmt::format("{}<{}", word, dtype.name());
  if (kind != TypeKind::kVariable || !shape.empty()) out += ", " + shape_text(shape);
  if (layout) out += ", " + layout->to_string();
  return out + ">";
}

}  // namespace imbrex::ir
