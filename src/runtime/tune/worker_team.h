// SPDX-License-Identifier: Apache-2.0
// Workers that try candidates side by side, one per GPU. Each is asked by a thread of its own, which lives as long as the
// team, because a worker ends with the thread that has started it.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/tune/worker_client.h"

namespace imbrex::runtime {

class WorkerTeam {
 public:
  using Open = std::function<std::unique_ptr<WorkerClient>(size_t member, std::string& why_not)>;
  /// `open` starts the worker of a member, on that member's thread.
  WorkerTeam(size_t members, Open open);
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  size_t size() const { return workers_.size(); }
  /// Calls body(member) for the first `members`, each on its own thread; member 0's is the caller's, which must always be
  /// the same. Returns when all have; then the first exception is thrown again.
  void run(size_t members, const std::function<void(size_t member)>& body);
  /// On the member's thread: starts its worker ahead. A failure shows when the worker is needed.
  void start(size_t member);
  /// On the member's thread: its worker, started where none is alive. DeviceError when it does not start.
  WorkerClient& worker(size_t member);

 private:
  void serve(size_t member);
  void call(size_t member);

  const Open open_;
  std::vector<std::unique_ptr<WorkerClient>> workers_;
  std::mutex mutex_;
  std::condition_variable begins_, ends_;
  const std::function<void(size_t)>* body_ = nullptr;
  size_t active_ = 0, running_ = 0,
         calls_ = 0;  // members of the present call; those not yet back; calls so far
  bool is_over_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;  // of members 1, 2, ...
};

}  // namespace imbrex::runtime
