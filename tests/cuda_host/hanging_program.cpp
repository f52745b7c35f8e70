// SPDX-License-Identifier: Apache-2.0
// A CUDA program that hangs in its own code, in the way that its argument names:
//   mutexes   two threads take two mutexes in opposite orders
//   again     the only thread takes a mutex that it holds
//   flag      spins on managed memory that nobody writes any more
//   ask       asks for ever whether a stream's work is done
//   gate      waits for a stream whose host function waits for what it would do then
// or that only looks so, and ends by itself:
//   callback  a host function waits for a thread that makes calls
//   opened    a host function waits for what the program does after submitting it, and another stream's work goes on meanwhile
//   busy      computes for seconds without a call
//   late      waits for a thread that sleeps first
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>

#include "cuda_host/abi/driver_functions.h"

extern "C" {
CUresult cuStreamCreate(CUstream* stream, unsigned flags);
CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void*), void* data);
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream);
}

namespace {

void check(CUresult result) {
  if (result != CUDA_SUCCESS) std::exit(3);
}

std::mutex g_first, g_second;

[[gnu::noinline]] void take_in_order(std::mutex& one, std::mutex& other, std::latch& both) {
  const std::lock_guard lock(one);
  both.arrive_and_wait();
  const std::lock_guard more(other);
}

void hang_by_mutexes() {
  std::latch both(2);
  std::thread thread([&] { take_in_order(g_second, g_first, both); });
  take_in_order(g_first, g_second, both);
  thread.join();
}

[[gnu::noinline]] void spin_on(const volatile int* flag) {
  while (*flag == 0) {
  }
}

void hang_by_flag() {
  CUdeviceptr flag = 0;
  constexpr unsigned kGlobal = 1;
  check(cuMemAllocManaged(&flag, 256, kGlobal));
  auto* const word = reinterpret_cast<volatile int*>(flag + 8);
  *word = 0;
  spin_on(word);
}

void hang_by_asking(CUstream stream) {
  for (;;) check(cuStreamQuery(stream));
}

/// A host function of a stream, and what it waits for.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_open = false;
  static void wait(void* data) {
    auto& gate = *static_cast<Gate*>(data);
    std::unique_lock lock(gate.mutex);
    gate.changed.wait(lock, [&] { return gate.is_open; });
  }
  void open() {
    const std::lock_guard lock(mutex);
    is_open = true;
    changed.notify_all();
  }
};

void hang_at_gate(CUstream stream) {
  Gate gate;
  check(cuLaunchHostFunc(stream, Gate::wait, &gate));
  check(cuStreamSynchronize(stream));
  gate.open();
}

unsigned word_at(CUdeviceptr address) { return *reinterpret_cast<volatile unsigned*>(address); }

void open_after_submitting(CUstream stream) {
  constexpr unsigned kGlobal = 1, kNonBlocking = 1;
  Gate gate;
  CUstream other = nullptr;
  CUdeviceptr words = 0;
  check(cuStreamCreate(&other, kNonBlocking));
  check(cuMemAllocManaged(&words, 8, kGlobal));
  check(cuMemsetD32Async(words, 1, 2, other));
  check(cuStreamSynchronize(other));
  check(cuLaunchHostFunc(stream, Gate::wait, &gate));
  check(cuMemsetD32Async(words, 2, 1, stream));
  check(cuMemsetD32Async(words + 4, 3, 1, other));
  check(cuStreamSynchronize(other));
  const bool is_ordered =
      word_at(words) == 1 && word_at(words + 4) == 3 && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
  gate.open();
  check(cuStreamSynchronize(stream));
  if (!is_ordered || word_at(words) != 2) std::exit(4);
}

void call_from_another_thread(CUcontext context, CUstream stream) {
  Gate gate;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CUdeviceptr x = 0;
    check(cuCtxSetCurrent(context));
    check(cuMemAlloc_v2(&x, 64));
    gate.open();
  });
  check(cuLaunchHostFunc(stream, Gate::wait, &gate));
  check(cuStreamSynchronize(stream));
  other.join();
}

/// xorshift: every step's state is another.
void compute_for(std::chrono::seconds time) {
  uint64_t state = 88172645463325252U;
  for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;)
    for (int i = 0; i < 10'000'000; ++i) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
    }
  std::printf("%d\n", static_cast<int>(state & 1));
}

void wait_for_a_sleeper() {
  Gate gate;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    gate.open();
  });
  Gate::wait(&gate);
  other.join();
}

}  // namespace

int main(int argc, char** argv) {
  const auto is = [&](const char* word) { return argc > 1 && std::strcmp(argv[1], word) == 0; };
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  check(cuInit(0));
  check(cuDevicePrimaryCtxRetain(&context, 0));
  check(cuCtxSetCurrent(context));
  check(cuStreamCreate(&stream, 0));
  if (is("mutexes")) hang_by_mutexes();
  if (is("again")) {
    g_first.lock();
    g_first.lock();
  }
  if (is("flag")) hang_by_flag();
  if (is("ask")) hang_by_asking(stream);
  if (is("gate")) hang_at_gate(stream);
  if (is("opened")) open_after_submitting(stream);
  if (is("callback")) call_from_another_thread(context, stream);
  if (is("busy")) compute_for(std::chrono::seconds(5));
  if (is("late")) wait_for_a_sleeper();
}
