// SPDX-License-Identifier: Apache-2.0
// What the environment says of the virtual GPU under a program. `imbrex run` sets these variables from its options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "imbrex/inspect/gpu_model.h"
#include "imbrex/vgpu/options.h"

namespace imbrex::cuda {

/// Which launches are checked, counted from 1 over the process: "first:3", "5-9", "every:10", "7".
struct LaunchSelection {
  int64_t first = 1, last = INT64_MAX, every = 1;
  bool contains(int64_t launch) const {
    return launch >= first && launch <= last && (launch - first) % every == 0;
  }
  /// LaunchError where the text is none of the forms above.
  static LaunchSelection parse(const std::string& text);
};

struct Settings {
  GpuModel gpu;                      // IMBREX_GPU: h200 unless given
  int gpus = 1;                      // IMBREX_GPUS: how many of them
  vgpu::Options options;             // IMBREX_CHECKS, IMBREX_SEED, IMBREX_CTAS, IMBREX_TIMELINE=1
  LaunchSelection launches;          // IMBREX_LAUNCHES
  std::vector<std::string> kernels;  // IMBREX_KERNELS: names with * and ?, separated by commas; empty: all
  std::string suppressions;          // IMBREX_SUPPRESSIONS: a file
  std::string run_folder;            // IMBREX_RUN_FOLDER: where `imbrex run` collects what processes find
  std::string saved_ptx;             // IMBREX_SAVE_PTX: a folder for the PTX of every module
  bool notes = false;                // IMBREX_NOTES=1: what bends rules, too
  bool stop_at_first = false;        // IMBREX_STOP_AT_FIRST=1: end the process at the first finding
  bool progress = true;              // IMBREX_PROGRESS=0: nothing on stderr about kernels that take long

  /// Throws imbrex::Error naming the variable that cannot be used, and what it may be.
  static Settings from_environment();
};

/// True where `name` is matched by a pattern with * (any characters) and ? (any one).
bool matches(std::string_view pattern, std::string_view name);

}  // namespace imbrex::cuda
