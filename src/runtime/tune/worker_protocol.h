// SPDX-License-Identifier: Apache-2.0
// What the tuner and its worker process tell each other: one JSON object per line, requests on the worker's
// stdin, answers on its stdout.
//
//   {"do": "open", "kernel", "device", "ordinal", "target", "gpu", "sizes", "seed"}  ->  {} or {"error"}
//   {"do": "try", "config", "verify", "restore", "launches", "limit_us", "default_sizes"}
//       ->  {"stage": "launching"}, {"stage": "checking"}, {"stage": "measuring"}: what is going on now; then
//           {"status": "right", "times": [us, ...]}
//           or {"status": "wrong" | "failed" | "trapped" | "slow", "reason", "spill_bytes"}
//   {"do": "predict", "config", "sample"}
//       ->  the same, with the predicted time and "sampling_error"; nothing is computed or verified
//   {"do": "assemble", "config"}                         ->  {"status", ...} as above, without times
//
// A worker whose device is lost ("trapped") ends after its answer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "imbrex/runtime/tuner.h"

namespace imbrex::runtime {

/// What a worker is opened for.
struct WorkerProblem {
  std::string kernel;  ///< the registered kernel's name
  std::string device;  ///< "virtual" or "cuda"
  int ordinal = 0;     ///< of the CUDA GPU
  std::string target;  ///< of the virtual GPU: "sm_90a"
  std::string
      gpu;  ///< whose times the virtual GPU predicts: "rtx4090"; "" for the one that stands for the target
  std::map<std::string, int64_t> sizes;
  uint64_t seed = 0;
};

struct WorkerRequest {
  enum class Kind : uint8_t { kOpen, kTry, kPredict, kAssemble };
  Kind kind = Kind::kTry;
  WorkerProblem problem;          ///< kOpen
  std::string config;             ///< kTry, kPredict, kAssemble: TuningSpace::to_string
  bool verify = true;             ///< kTry: run once and compare with the reference before measuring
  bool restore_inputs = false;    ///< kTry: write the inputs again first
  int launches = 5;               ///< kTry: to measure
  double limit_us = 0;            ///< kTry: stop after a first launch that took longer; 0: no limit
  bool at_default_sizes = false;  ///< kTry on the virtual GPU: verify with the kernel's default sizes instead
  bool sample = true;             ///< kPredict: from PTX, and a part of the launch where that is enough
};

/// How a candidate fared.
struct WorkerVerdict {
  Candidate::Status status = Candidate::Status::kDropped;  ///< kDropped: right, as far as is known
  std::string reason = {};                                 ///< for all others
  std::vector<double> times = {};                          ///< of the launches, in microseconds
  int64_t spill_bytes = 0;                                 ///< per thread, of kSlow
  double sampling_error = 0;                               ///< of a prediction, relative
};

struct WorkerAnswer {
  enum class Kind : uint8_t { kOpened, kError, kStage, kVerdict };
  enum class Stage : uint8_t { kPreparing, kLaunching, kChecking, kMeasuring };
  Kind kind = Kind::kOpened;
  std::string error = {};           ///< kError
  Stage stage = Stage::kPreparing;  ///< kStage
  WorkerVerdict verdict = {};       ///< kVerdict
};
/// "preparing", "launching", ...
const char* name(WorkerAnswer::Stage stage);

/// A request or an answer as one line, without the newline.
std::string to_line(const WorkerRequest& request);
std::string to_line(const WorkerAnswer& answer);
/// Nothing when the line is none.
std::optional<WorkerRequest> parse_request(const std::string& line);
std::optional<WorkerAnswer> parse_answer(const std::string& line);

}  // namespace imbrex::runtime
