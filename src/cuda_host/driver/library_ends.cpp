// SPDX-License-Identifier: Apache-2.0
// When the process ends, or closes libcuda.so.1: the last words about what was found.
#include <chrono>
#include <thread>

#include "cuda_host/host/host.h"

namespace {

constexpr int kMilliseconds = 1000;

__attribute__((destructor)) void say_last_words() {
  imbrex::cuda::Host* host = imbrex::cuda::Host::made();
  if (host == nullptr) return;
  host->backlog.stop();
  // A kernel behind a host function may be running, or one of another thread, which may never end.
  imbrex::cuda::CallLock& mutex = imbrex::cuda::Host::mutex();
  bool is_locked = mutex.try_lock();
  for (int i = 0; i < kMilliseconds && !is_locked; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    is_locked = mutex.try_lock();
  }
  host->log.finish();
  if (is_locked) mutex.unlock();
}

}  // namespace
