// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/progress.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "cuda_host/host/run_log.h"

namespace imbrex::cuda {

Progress::Progress(bool is_wanted, const std::string& kernel) {
  if (!is_wanted) return;
  thread_ = std::thread([this, kernel] {
    std::unique_lock lock(mutex_);
    const auto begin = std::chrono::steady_clock::now();
    for (std::chrono::seconds after(4);; after *= 2) {
      if (ended_.wait_until(lock, begin + after, [this] { return is_over_; })) return;
      fmt::print(stderr, "imbrex: {} has been running for {} s\n", demangled(kernel), after.count());
    }
  });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

}  // namespace imbrex::cuda
