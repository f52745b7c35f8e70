// SPDX-License-Identifier: Apache-2.0
// Where programs are looked for: one rule for all who need a tool of the CUDA toolkit.
#pragma once

#include <string>
#include <vector>

namespace imbrex {

/// The path of a program: `name` in PATH, then in `folders`; "" when it is in none.
std::string find_program(const std::string& name, const std::vector<std::string>& folders = {});

struct CudaTool {
  std::string path;       ///< "" where there is none
  bool is_named = false;  ///< the environment names this file; it has not been checked that it exists
  std::string why_not;    ///< for a tool that was not found: where it was looked for
};

/// A tool of the CUDA toolkit, such as "ptxas" or "nvdisasm". The variable IMBREX_PTXAS (IMBREX_ and the
/// tool's name in capitals) names its file, or is "none", which hides the tool. Without the variable it is
/// looked for in PATH, $CUDA_HOME/bin, $CUDA_PATH/bin and /usr/local/cuda/bin.
CudaTool find_cuda_tool(const std::string& name);

}  // namespace imbrex
