// SPDX-License-Identifier: Apache-2.0
// Whatever a rank does on the host while its kernels wait for one that does not come: it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "../skip.h"
#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"

namespace imbrex::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Each CTA waits for a signal; with 32 warps two fill a multiprocessor.
struct WaitForSignal {
  static constexpr const char* target = "sm_80";
  void operator()(Int32 ctas, int ranks, int64_t rank_stride_bytes, int64_t count, Int32 rank,
                  Ptr<int32> signal_ptr) const {
    grid(ctas);
    warps(32);
    signal::wait(symmetric_view(signal_ptr, int32, rank_stride_bytes, ranks, {count})[rank][count - 1], 1);
  }
};
struct StoreOne {
  static constexpr const char* target = "sm_80";
  void operator()(Ptr<int32> to) const {
    grid(1);
    warps(1);
    store_global(global_view(to, {32}), full(int32, {32}, 1), {0});
  }
};

constexpr double kPatience = 1;

/// The error of rank 0, whose kernel waits for rank 1, when it does `what`; after how many seconds.
struct Outcome {
  std::string error;
  double seconds = 0;
};
using Program = std::function<void(Communicator&, const std::function<void()>& launch)>;
Outcome outcome_of(const Program& what) {
  Outcome outcome;
  std::atomic<bool> is_over = false;
  try {
    run_ranks(Ranks::cuda(2).patience(kPatience), [&](Communicator& ranks) {
      constexpr int64_t kSignals = int64_t{1} << 20;  // as many as make a fill a kernel
      const SymmetricTensor signals = ranks.signals(kSignals);
      Kernel<WaitForSignal> wait({}, ranks.device());
      const int ctas = 2 * ranks.device().multiprocessors();
      wait.prepare(ctas, 2, signals.rank_stride_bytes(), kSignals, ranks.rank(), signals.all().address());
      ranks.barrier();
      if (ranks.rank() == 1) {
        while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      const auto begin = std::chrono::steady_clock::now();
      try {
        what(ranks,
             [&] { wait(ctas, 2, signals.rank_stride_bytes(), kSignals, 0, signals.all().address()); });
      } catch (const std::exception& error) {
        outcome.error = error.what();
      }
      outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      is_over = true;
    });
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
    is_over = true;
  }
  return outcome;
}

bool has_two_gpus() { return Ranks::cuda_devices() >= 2; }

void expect_told(const Outcome& outcome) {
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("rank 0: a kernel has not ended within 1 s"),
                                   HasSubstr("rank 1 is in its host program")));
  EXPECT_GE(outcome.seconds, kPatience);
  EXPECT_LT(outcome.seconds, 20);
}

TEST(WaitsOnTwoGpus, ForAKernelThatFillsTheGpuAreEnded) {
  if (!has_two_gpus()) IMBREX_SKIP(two_gpus);
  expect_told(outcome_of([](Communicator& ranks, const auto& launch) {
    launch();
    ranks.synchronize();
  }));
}

TEST(WaitsOnTwoGpus, OfTheDeviceAndItsTensorsAreEnded) {
  if (!has_two_gpus()) IMBREX_SKIP(two_gpus);
  expect_told(outcome_of([](Communicator& ranks, const auto& launch) {
    launch();
    ranks.device().synchronize();
  }));
  expect_told(outcome_of([](Communicator& ranks, const auto& launch) {
    const DeviceTensor x = DeviceTensor::empty(ranks.device(), int32, {32});
    launch();
    (void)x.to_host();
  }));
  expect_told(outcome_of([](Communicator& ranks, const auto& launch) {
    DeviceTensor x = DeviceTensor::empty(ranks.device(), int32, {32});
    launch();
    x.copy_from(HostTensor(int32, {32}));
  }));
}

TEST(WaitsOnTwoGpus, OfAKernelThatIsLoadedAreEnded) {
  if (!has_two_gpus()) IMBREX_SKIP(two_gpus);
  expect_told(outcome_of([](Communicator& ranks, const auto& launch) {
    const DeviceTensor x = DeviceTensor::empty(ranks.device(), int32, {32});
    Kernel<StoreOne> store({}, ranks.device());
    launch();
    store(x);
  }));
}

TEST(WaitsOnTwoGpus, OfMemoryAndModulesThatAreFreedAreEndedAndToldLater) {
  if (!has_two_gpus()) IMBREX_SKIP(two_gpus);
  for (const bool is_kernel : {false, true}) {
    const Outcome outcome = outcome_of([&](Communicator& ranks, const auto& launch) {
      std::optional<DeviceTensor> x = DeviceTensor::empty(ranks.device(), int32, {32});
      auto store = std::make_unique<Kernel<StoreOne>>(StoreOne(), ranks.device());
      (*store)(*x);
      ranks.synchronize();
      launch();
      if (is_kernel)
        store.reset();
      else
        x.reset();
      ranks.synchronize();
    });
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("rank 0: the waits of its kernels were ended"),
                                     HasSubstr("rank 1 is in its host program")));
    EXPECT_LT(outcome.seconds, 20);
  }
}

TEST(WaitsOnTwoGpus, OfAProgramThatThrowsAreEnded) {
  if (!has_two_gpus()) IMBREX_SKIP(two_gpus);
  const Outcome outcome = outcome_of([](Communicator& ranks, const auto& launch) {
    const DeviceTensor x = DeviceTensor::empty(ranks.device(), int32, {32});
    launch();
    throw std::runtime_error("the disk is full");
  });
  EXPECT_EQ(outcome.error, "the disk is full");
  EXPECT_LT(outcome.seconds, 20);
}

TEST(WaitsOnTwoGpus, OfAFullQueueOfLaunchesAreEnded) {
  if (!has_two_gpus()) IMBREX_SKIP(two_gpus);
  expect_told(outcome_of([](Communicator&, const auto& launch) {
    for (int i = 0; i < 5000; ++i) launch();
  }));
}

}  // namespace
}  // namespace imbrex::parallel
