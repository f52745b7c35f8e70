// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/parallel.h"

#include <atomic>
#include <exception>
#include <mutex>

namespace imbrex::runtime {

void parallel_for(size_t count, size_t workers, const std::function<void(size_t)>& job) {
  std::atomic<size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  auto work = [&] {
    for (size_t i; (i = next++) < count;) {
      try {
        job(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t w = 1; w < std::min(count, std::max<size_t>(workers, 1)); ++w) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace imbrex::runtime
