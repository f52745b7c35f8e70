// SPDX-License-Identifier: Apache-2.0
// Predictions that read machine code.
#pragma once

namespace imbrex {

/// From now on this process predicts the time of kernels from their machine code, where ptxas is found: their registers, what they
/// issue, and the stalls in it (docs/timeline.md). The machine code is kept in the cache. False, and nothing changes, without ptxas.
bool predict_from_machine_code();

}  // namespace imbrex
