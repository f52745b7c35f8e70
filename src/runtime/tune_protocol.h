// SPDX-License-Identifier: Apache-2.0
// What the tuner and its worker say to each other, one JSON object a line.
//
//   {"do": "open", "kernel", "device", "sizes", "seed"}   -> {"device", "multiprocessors"} or {"error"}
//   {"do": "try", "config", "verify", "launches", "limit_us"}
//        -> {"stage": "launching"}, {"stage": "checking"}, {"stage": "measuring"}: what is going on now
//        -> {"status": "right", "times": [us, ...]}, or {"status": "wrong" | "failed" | "trapped" | "slow",
//        "reason"}
//   {"do": "assemble", "config"}                          -> {"status": "right"}, or as above
//
// A worker whose device is lost ("trapped") ends after its answer.
#pragma once

#include <string>

#include "imbrex/device.h"

namespace imbrex::runtime {

/// What a launch on the virtual GPU would roughly take on the chip it models, from what was counted: the
/// slowest of issue slots, memory, shared memory and tensor cores, plus a start for each wave of CTAs.
double modelled_microseconds(const LaunchReport& report, int multiprocessors);

}  // namespace imbrex::runtime
