// SPDX-License-Identifier: Apache-2.0
// What both forms of `imbrex demo` share: colours, bars, and the ladders of matrix products.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "subcommands.h"

namespace imbrex::command {

/// Escape sequences of a terminal; empty where standard output is none.
struct Palette {
  const char *good = "", *bad = "", *dim = "", *bold = "", *bar = "", *off = "";
  static Palette of_stdout();
};

/// A share as a bar of ten characters, in eighths.
std::string bar(double share);
/// 1234567 -> "1.23 M"; 0 -> "-".
std::string short_number(double value, const char* unit = "");
/// "verified" or "WRONG", coloured.
std::string verdict(bool verified, bool good, const Palette& palette);

/// Kernels NAME_x0, NAME_x1, ... of one name and letter, in order.
struct Ladder {
  std::string name;  ///< "hopper_matmul_h"
  std::vector<const RegisteredKernel*> steps;

  std::string title() const;  ///< "hopper matmul"
  std::string step_name(const RegisteredKernel& step) const {
    return step.description.name.substr(name.size() - 1);
  }
};
std::vector<Ladder> ladders();

/// The kernel's sizes, those of `wanted` in place of the defaults.
std::map<std::string, int64_t> sizes_with(const RegisteredKernel& kernel,
                                          const std::map<std::string, int64_t>& wanted);
/// "4096×4096×4096": extents, without switches (sizes whose default is 0 or 1).
std::string shape_text(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes);

/// Everything on the virtual GPU: ladders with predicted times, then every other kernel once. Prints tables, or
/// fills `json` if it is not null. Returns whether all was verified and nothing found.
bool demo_on_virtual_gpu(const Palette& palette, nlohmann::ordered_json* json);
/// The CUDA GPU's own ladder at `extent`^3 beside cuBLASLt, and attention, softmax and layer norm beside the
/// GPU's peaks.
bool demo_on_cuda(int64_t extent, const Palette& palette, nlohmann::ordered_json* json);

}  // namespace imbrex::command
