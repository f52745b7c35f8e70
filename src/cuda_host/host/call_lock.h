// SPDX-License-Identifier: Apache-2.0
// The lock that every call holds. A call that runs code of the program, a host function of a stream, lets go of it
// meanwhile: such code may wait for a thread that makes calls.
#pragma once

#include <mutex>

namespace imbrex::cuda {

class CallLock {
 public:
  void lock() {
    mutex_.lock();
    ++depth_;
  }
  bool try_lock() {
    const bool is_taken = mutex_.try_lock();
    if (is_taken) ++depth_;
    return is_taken;
  }
  void unlock() {
    --depth_;
    mutex_.unlock();
  }
  /// Of the thread that holds it: lets go however often it was locked; take_back() gets that number.
  int let_go() {
    const int depth = depth_;
    for (int i = 0; i < depth; ++i) unlock();
    return depth;
  }
  void take_back(int depth) {
    for (int i = 0; i < depth; ++i) lock();
  }

 private:
  std::recursive_mutex mutex_;
  int depth_ = 0;  // changed by the thread that holds the mutex
};

}  // namespace imbrex::cuda
