// SPDX-License-Identifier: Apache-2.0
// A kernel of the command line looked at from all sides: traced and counted, compiled, and run on the virtual
// GPU. Shared by the subcommands that explain one.
#pragma once

#include <string>
#include <vector>

#include "imbrex/inspect/gpu_model.h"
#include "imbrex/inspect/tiling.h"
#include "imbrex/inspect/traffic.h"
#include "imbrex/runtime/compile.h"
#include "subcommands.h"

namespace imbrex::command {

/// "m=256 n=256 k=256".
std::string sizes_text(const KernelChoice& choice);
/// Freshly traced, with the sizes and configuration chosen.
Case traced_kernel(const KernelChoice& choice);
/// Bytes and banks, counted from the IR.
KernelTraffic counted_traffic(const KernelChoice& choice);

/// A run on the virtual GPU without checkers, for its counts and `gpu`'s times.
struct StudyRun {
  vgpu::Report report;
  bool verified = false;
  double max_rel_err = 0;
};
StudyRun study_run(const KernelChoice& choice, const GpuModel& gpu, bool with_timeline);

/// A virtual GPU that predicts `gpu`'s times as `timeline` asks, on so many of its SMs (0: all), and computes no products,
/// at whose results nobody looks.
Device predicting_device(const GpuModel& gpu, int sms, vgpu::TimelineOptions timeline);
/// Launches once, without comparing the results.
vgpu::Report predicted_launch(const KernelChoice& choice, const Device& device,
                              const Configuration& configuration, const std::shared_ptr<CaseData>& data);

/// What the virtual GPU counted, under the names of what is counted from the IR.
TrafficCounts counts_of(const vgpu::Statistics& statistics);
/// "global_bytes_read: 1234 from the IR, 1200 in the run", one entry for every count that differs.
std::vector<std::string> differences(const TrafficCounts& from_ir, const TrafficCounts& from_run);

/// What bank conflicts cost at one line of the kernel's source.
struct LineBanks {
  std::string file;
  int line = 0;
  bool writes = false;
  int bytes = 0;  // of a lane, the widest
  int64_t accesses = 0, wavefronts = 0, ideal = 0;
  int degree = 1;
  friend bool operator==(const LineBanks&, const LineBanks&) = default;
};
/// By file, line and direction.
std::vector<LineBanks> banks_by_line(const std::vector<vgpu::BankUse>& counted);
std::vector<LineBanks> banks_by_line(const std::vector<BankPrediction>& predicted);

/// "1.23 T" of a number of units.
std::string scaled(double value);
/// "matmul_v4.h:47".
std::string place_text(const std::string& file, int64_t line);

}  // namespace imbrex::command
