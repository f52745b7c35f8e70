// SPDX-License-Identifier: Apache-2.0
// The tuner's side of a worker process: candidates are tried where they may hang, trap, or end the process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/host/process.h"
#include "runtime/tune/worker_protocol.h"

namespace imbrex::runtime {

class WorkerClient {
 public:
  /// Starts a worker by `argv` (none: this program with the argument "worker") and lets it open its device.
  /// The worker keeps machine code in the folder `cache`. Null, with the reason in `why_not`, when it does
  /// not start or cannot open the device.
  static std::unique_ptr<WorkerClient> open(std::vector<std::string> argv, const std::string& cache,
                                            const WorkerProblem& problem, std::string& why_not);

  /// False once it was killed or has ended: another one has to be opened.
  bool is_alive() const { return process_.is_alive(); }
  /// Verifies and measures a candidate; waits until it has, or until the launches took `timeout_s` seconds,
  /// after which the worker is killed. A worker whose device is lost is killed, too.
  WorkerVerdict try_candidate(const WorkerRequest& request, double timeout_s);
  /// Assembles a candidate by the worker's driver, which leaves the machine code in the cache.
  WorkerVerdict assemble(const std::string& config);

 private:
  WorkerClient(const std::vector<std::string>& argv, const std::string& cache)
      : process_(argv, {{"IMBREX_CACHE_DIR", cache}}) {}

  WorkerProcess process_;
};

}  // namespace imbrex::runtime
