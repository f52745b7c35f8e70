// SPDX-License-Identifier: Apache-2.0
// What is asked of the tensors of a call, and a tensor of a refused one as messages tell of it.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>

#include "imbrex/core/error.h"
#include "imbrex/runtime/device_tensor.h"

namespace imbrex {

/// "float16 [128, 64]", and its strides where it is not dense.
inline std::string tensor_text(const DeviceTensor& t) {
  std::string text = fmt::format("{} [{}]", t.dtype().name(), fmt::join(t.shape(), ", "));
  if (!t.is_dense()) text += fmt::format(" with strides [{}]", fmt::join(t.strides(), ", "));
  return text;
}
/// The same with its name before it: "a  float16 [128, 64]".
inline std::string tensor_fact(std::string_view name, const DeviceTensor& t) {
  return fmt::format("{}  {}", name, tensor_text(t));
}

/// Adds "a  float16 [128, 64] with strides [64, 1]"; nothing for a null tensor.
inline void add_fact(Diagnostic& told, std::string_view name, const DeviceTensor& t) {
  if (!t.is_null())
    told.facts.push_back(fmt::format("{}  {} [{}] with strides [{}]", name, t.dtype().name(),
                                     fmt::join(t.shape(), ", "), fmt::join(t.strides(), ", ")));
}

/// Whether dense tensors have bytes in common.
inline bool share_memory(const DeviceTensor& a, const DeviceTensor& b) {
  const auto end = [](const DeviceTensor& t) { return t.address() + static_cast<uint64_t>(t.bytes()); };
  return a.is_dense() && b.is_dense() && a.address() < end(b) && b.address() < end(a);
}

}  // namespace imbrex
