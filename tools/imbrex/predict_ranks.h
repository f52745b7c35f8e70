// SPDX-License-Identifier: Apache-2.0
// `imbrex predict NAME --ranks N`: the time of what the GPUs of a server launch together.
#pragma once

#include "imbrex/inspect/gpu_model.h"
#include "subcommands.h"

namespace imbrex::command {

/// `choice` names one of parallel::registered_ranks(). `sms`, `clock_ghz`: 0 for the GPU's own; `trace`: a file for Perfetto, or "".
int predict_ranks(const KernelChoice& choice, const GpuModel& gpu, int ranks, int sms, double clock_ghz,
                  const std::string& trace, bool json);

}  // namespace imbrex::command
