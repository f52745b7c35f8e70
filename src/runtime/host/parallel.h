// SPDX-License-Identifier: Apache-2.0
// Host work on several threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace imbrex::runtime {

/// Calls job(0) ... job(count - 1) on up to `workers` threads, the caller's among them. Each takes the next
/// index when it is done with one. All jobs run; then the first exception is thrown again.
void parallel_for(size_t count, size_t workers, const std::function<void(size_t)>& job);

/// Calls body(first, last) over disjoint parts of [0, count), one part per core. `body` must not throw.
template <class Body>
void parallel_rows(int64_t count, Body body) {
  const int64_t workers = std::max<int64_t>(1, std::min<int64_t>(std::thread::hardware_concurrency(), count));
  std::vector<std::thread> threads;
  for (int64_t w = 0; w < workers; ++w)
    threads.emplace_back(body, count * w / workers, count * (w + 1) / workers);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace imbrex::runtime
