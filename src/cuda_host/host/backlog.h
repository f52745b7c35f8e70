// SPDX-License-Identifier: Apache-2.0
// Host functions of streams, and what comes behind them. Work is carried out by the call that submits it, but for host functions:
// they run on a thread of the layer's own, one after the other for all streams, as drivers do it; what follows one in its stream, or
// waits for such a stream, is carried out there as well. Steps are taken in the order in which they were submitted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace imbrex::cuda {

class Backlog {
 public:
  /// Steps are numbered from 1; nothing has to be waited for where a number is 0.
  using Number = uint64_t;
  /// Taken by the thread with the call's lock held. Callers hold that lock, too.
  Number add(std::function<void()> step);
  bool has_passed(Number number) const { return number <= passed_.load(std::memory_order_acquire); }
  bool is_empty() const { return has_passed(added_); }
  Number last() const { return added_; }
  /// Lets go of the call's lock meanwhile: what is waited for may wait for other calls.
  void wait_for(Number number);
  /// Steps that have not been taken.
  uint64_t length() const { return added_ - passed_.load(std::memory_order_acquire); }
  /// The process ends: no step is begun any more.
  void stop();

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> steps_;
  std::atomic<Number> added_{0}, passed_{0};
  bool is_running_ = false, stops_ = false;
};

/// Code of the program runs on this thread while it lives, which may make no calls but those that ask about devices.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};
/// CUDA_ERROR_NOT_PERMITTED where a host function makes that call.
void expect_no_host_function(const char* call);

}  // namespace imbrex::cuda
