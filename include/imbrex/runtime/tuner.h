// SPDX-License-Identifier: Apache-2.0
// Tuning: finding the fastest configuration of a registered kernel's space for given sizes, and finding again
// what was found.
//
// Each configuration is compiled; what does not fit the target is rejected with the reason; the rest is
// assembled in parallel and measured, on a CUDA device with a cold L2, by a worker process that can be
// killed. Half of the candidates are dropped after each round, and the rest measured longer. A candidate that
// fails to assemble, spills, hangs, traps or computes a wrong result is reported and dropped. Each result is
// kept in the cache as soon as it is there, so that a tuning that was interrupted goes on where it stopped.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "imbrex/runtime/registry.h"

namespace imbrex {

struct Candidate {
  enum class Status {
    kWaiting,     // not reached, because the tuning was interrupted
    kRejected,    // does not compile, or does not fit the target
    kSlow,        // spills, or ptxas serializes its products
    kFailed,      // the assembler or the launch refused it
    kHung,        // ran longer than the time-out and was killed
    kTrapped,     // ended with a device error, or took the worker with it
    kWrong,       // its result is not the reference's, or the virtual GPU found something
    kDropped,     // right, and slower than others
    kBest,        // measured to the end
    kPassedOver,  // predicted to be slower than as many as were to be measured
  };
  Configuration configuration;
  std::string text;  ///< "block_m=128 block_n=64"
  Status status = Status::kWaiting;
  std::string reason;       ///< for all that were not measured
  double microseconds = 0;  ///< median of the last round; on the virtual GPU the timeline's prediction
  /// What the timeline predicts: on the virtual GPU the same, on a CUDA GPU where TuneOptions::measure_best asked for it.
  double predicted = 0;
  double sampling_error =
      0;  ///< of `predicted`, relative, where it was extrapolated from a part of the launch
  bool is_verified = false;  ///< compared with the reference
  double spread = 0;         ///< half the interquartile range, over the median
  int round = 0;             ///< the last in which it was measured, from 1
  /// Its time over the fastest of its last round. Times of different rounds do not compare: a chip under
  /// load slows down.
  double behind = 0;
  int launches = 0;            ///< measured
  double assembling_ms = 0;    ///< 0 when the machine code was in the cache
  int registers = 0;           ///< per thread, where ptxas assembled it
  int64_t spill_bytes = 0;     ///< per thread, stored to memory because registers did not suffice
  bool is_remembered = false;  ///< its first measurement is an earlier, interrupted tuning's

  bool is_right() const { return status == Status::kDropped || status == Status::kBest; }
};
/// "rejected", "hung", ...
const char* name(Candidate::Status status);

struct TuneResult {
  std::string kernel, device, target;
  std::map<std::string, int64_t> sizes;
  bool is_modelled = false;    ///< predicted by the virtual GPU's timeline, not measured
  bool is_remembered = false;  ///< nothing was run: an earlier result, `candidates` has its winner only
  bool is_interrupted = false;
  /// By how much predictions for two configurations of one kernel differ from what was measured, relative, on average
  /// (docs/tuning.md): predicted times nearer to each other than that do not tell which is faster. 0 where none were made.
  double prediction_error = 0;
  std::vector<Candidate> candidates;           ///< the right ones first, fastest first
  double seconds = 0, assembling_seconds = 0;  ///< wall time; the sum of the assemblers' times

  /// The fastest, which is verified; null when none is right.
  const Candidate* winner() const {
    return !candidates.empty() && candidates[0].is_right() ? &candidates[0] : nullptr;
  }
};

struct TuneOptions {
  std::string device = "auto";  ///< as Device::open
  /// The GPU whose times the virtual GPU predicts, by the name of its model (imbrex/inspect/gpu_model.h): what an sm_80
  /// kernel takes on an "rtx4090". "": the one that stands for the kernel's target. LaunchError with another device
  /// than "virtual", and for a GPU that does not run the kernel.
  std::string gpu;
  uint64_t seed = 1;
  double timeout_s = 5;  ///< for one candidate's launches
  int jobs = 0;          ///< assemblers at once; 0: one per core
  /// GPUs to measure on at once, all of the first one's name; 0: all of them. The last few candidates are measured on the
  /// first GPU alone. On the virtual GPU: worker processes that predict at once. LaunchError where there are fewer.
  int gpus = 1;
  bool again = false;  ///< measure everything anew, whatever is in the cache
  /// On a CUDA GPU: predict every candidate's time first, and measure this many, those predicted to be the fastest,
  /// in that order. 0: all, in the order of the space. LaunchError for a GPU that no model is known of.
  int measure_best = 0;
  /// The command line that starts a worker. Empty: this program with the argument "worker", which
  /// command_main() answers. A program that does not call command_main() has to call
  /// tune_worker_main() for it.
  std::vector<std::string> worker;
  /// Called after each step; `done` of `total` candidates are through the present round.
  std::function<void(const std::string& phase, size_t done, size_t total)> progress;
  const std::atomic<bool>* stop = nullptr;  ///< ends the tuning early when set; nothing found is lost
};

/// Tunes `kernel` for `sizes` (every declared one). Throws LaunchError and DeviceError where nothing can be
/// tuned at all; what is wrong with single candidates is in the result.
TuneResult tune(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
                const TuneOptions& options = {});

/// The worker's side: answers requests on stdin until it ends. Returns the exit code.
int tune_worker_main();

/// A configuration found by tuning, for another shape perhaps.
struct TunedConfiguration {
  Configuration configuration;
  std::string text;
  std::vector<int64_t> shape;  ///< it was tuned for (see KernelBase)
  double microseconds = 0;
  bool is_modelled = false;
  bool is_exact = false;  ///< tuned for this very shape
};

/// The configuration tuned for the shape nearest to `sizes` on a device of this name; nothing when none was,
/// or the kernel has changed since. `why_not` receives the reason.
std::optional<TunedConfiguration> find_tuned(const RegisteredKernel& kernel,
                                             const std::map<std::string, int64_t>& sizes,
                                             const Device& device, std::string* why_not = nullptr);

/// Why the machine code and the tuning result of a kernel with these sizes are found in the cache, or not.
std::string explain_cache(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& sizes,
                          const Configuration& configuration);

}  // namespace imbrex
