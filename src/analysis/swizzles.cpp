// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "imbrex/inspect/banks.h"
#include "layout/swizzle.h"

namespace imbrex {

std::vector<std::string> swizzle_names() {
  std::vector<std::string> names;
  for (int mode = 0; mode < layout::Swizzle::kCount; ++mode)
    names.emplace_back(layout::Swizzle{static_cast<layout::Swizzle::Mode>(mode)}.name());
  return names;
}

int64_t swizzled_address(std::string_view name, int64_t address) {
  if (const auto swizzle = layout::Swizzle::from_name(name)) return swizzle->apply(address);
  throw LaunchError(Diagnostic{{}, fmt::format("no swizzle is called '{}'", name), {}, ""});
}

}  // namespace imbrex
