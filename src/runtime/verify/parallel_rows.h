// SPDX-License-Identifier: Apache-2.0
// Host work on the rows of a matrix, on all cores.
#pragma once

#include <algorithm>
#include <thread>
#include <vector>

namespace imbrex {

/// Calls body(first, last) over disjoint parts of [0, count), one a core.
template <class Body>
void parallel_rows(int64_t count, Body body) {
  const int64_t workers = std::max<int64_t>(1, std::min<int64_t>(std::thread::hardware_concurrency(), count));
  std::vector<std::thread> threads;
  for (int64_t w = 0; w < workers; ++w)
    threads.emplace_back(body, count * w / workers, count * (w + 1) / workers);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace imbrex
