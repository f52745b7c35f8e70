// SPDX-License-Identifier: Apache-2.0
// What the operating system tells of this process's threads, for who judges whether the program hangs: what each waits
// for, and where in the program it is.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace imbrex::cuda {

struct HostThread {
  pid_t id = 0;
  std::string name;
  uint64_t cpu_ticks = 0;  // of 10 ms
  uint64_t pauses = 0;     // times it gave up its core to wait
  bool waits = false;      // for a futex, with no time limit: only another thread of the process can wake it
  uint64_t futex = 0;      // the address

  bool operator==(const HostThread&) const = default;
};

/// All but the calling one, by id. Empty where the system does not tell.
std::vector<HostThread> other_threads();

/// What a waiting thread waits for: "a mutex that thread 12 holds", "the end of thread 12",
/// "a condition variable or semaphore".
std::string waits_for(const HostThread& thread, const std::vector<HostThread>& all);

/// A thread, interrupted for an instant: its registers, the program counter first, and the return addresses of its stack.
/// A thread that sleeps in a system call with a time limit may be woken early by it.
struct ThreadSample {
  std::vector<uint64_t> registers;
  std::vector<uint64_t> stack;
};
/// Samples one thread after the other. None where the thread does not answer in time: it blocks the signal, or has ended.
class ThreadSampler {
 public:
  ThreadSampler();
  ~ThreadSampler();
  ThreadSampler(const ThreadSampler&) = delete;
  ThreadSampler& operator=(const ThreadSampler&) = delete;
  std::optional<ThreadSample> sample(pid_t thread);

 private:
  alignas(16) std::array<std::byte, 192> before_{};  // the signal's action, struct sigaction
};

/// The innermost function of a stack that is the program's, not of the C or C++ library or of this one:
/// "worker(int) (./program+0x1234)"; "" where there is none.
/// Functions by which nvcc launches `kernel`, a name as its author wrote it, do not count.
std::string place_in_program(const std::vector<uint64_t>& stack, const std::string& kernel = "");
/// The same of the stack of the thread that calls.
std::string place_in_program();
/// The same of a launch; in Python the place in the interpreted program, while other threads may make calls.
std::string place_of_launch(const std::string& kernel);

}  // namespace imbrex::cuda
