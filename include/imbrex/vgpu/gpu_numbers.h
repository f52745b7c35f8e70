// SPDX-License-Identifier: Apache-2.0
// Every number that predicted times of a GPU rest on, and where it comes from (`imbrex list --gpus`).
#pragma once

#include <string>
#include <vector>

#include "imbrex/inspect/gpu_model.h"

namespace imbrex::vgpu {

/// Where a number comes from.
enum class NumberSource : uint8_t {
  kCalibrated,  // measured by `imbrex calibrate` on the GPU at hand
  kMeasured,    // measured on an H200 by bench/units
  kPublished,   // measurements that others published, of this chip or one of its generation
  kDocumented,  // a data sheet, a white paper or the PTX manual
  kScaled,   // measured on or published of Hopper's chips, and taken over, in proportion where there is one
  kFitted,   // so that rates that others published of whole kernels are possible: those of the B200 ladder
  kAssumed,  // near that of its neighbours
};
/// "measured", "published", ...
const char* name(NumberSource source);
/// What that means, in a few words.
const char* meaning(NumberSource source);

struct GpuNumber {
  std::string name;  // "tma_latency", as a model file spells it
  double value = 0;
  std::string unit;  // "clocks", "bytes per clock", "GB/s", ...
  std::string what;  // "from a bulk copy's issue to its arrival, beyond a thread's load"
  NumberSource source = NumberSource::kAssumed;
};

/// The numbers of a GPU: those of its model first, then an SM's, then what launches, L2 and memory cost besides.
std::vector<GpuNumber> gpu_numbers(const GpuModel& gpu);
/// A digest of all of them: predictions that were made with other numbers have another one.
std::string gpu_numbers_digest(const GpuModel& gpu);

}  // namespace imbrex::vgpu
