// SPDX-License-Identifier: Apache-2.0
// Ranks on a virtual node: all-reduce against sums in float64, what the checkers find between ranks, and what happens
// where a rank fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "../skip.h"
#include "gpu_counts.h"
#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"

namespace imbrex::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

vgpu::Options options(uint64_t seed, int64_t memory = int64_t{1} << 26) {
  vgpu::Options options{.target = "sm_90a", .num_sms = 4, .seed = seed};
  options.memory_bytes = memory;
  return options;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<double> sum_of(const std::vector<HostTensor>& inputs, int64_t n) {
  std::vector<double> sum(static_cast<size_t>(n));
  for (const HostTensor& input : inputs)
    for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] += input.get(i);
  return sum;
}

/// Two all-reduces one after the other, of different inputs in the same memory.
void check_all_reduce(const Ranks& where, int64_t n, AllReduce::Kind kind, DataType dtype, uint64_t seed,
                      int ctas) {
  const int ranks = where.count();
  SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << n << " elements, seed " << seed << ", kind "
                                    << static_cast<int>(kind));
  constexpr int kCalls = 2;
  std::vector<std::vector<HostTensor>> inputs(kCalls);
  for (int call = 0; call < kCalls; ++call)
    for (int rank = 0; rank < ranks; ++rank)
      inputs[static_cast<size_t>(call)].push_back(
          HostTensor::random(dtype, {n}, 1 + seed * 1000 + static_cast<uint64_t>(call * 16 + rank)));
  std::vector<std::vector<HostTensor>> outputs(kCalls);
  for (auto& of_call : outputs) of_call.resize(static_cast<size_t>(ranks));
  run_ranks(where, [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    AllReduce all_reduce(communicator, ctas);
    SymmetricTensor x = communicator.symmetric(dtype, {n}), y = communicator.symmetric(dtype, {n});
    DeviceTensor in = x.mine(), out = y.mine();
    for (size_t call = 0; call < kCalls; ++call) {
      out.poison();
      communicator.barrier();
      in.copy_from(inputs[call][rank]);
      all_reduce(x, y, kind).expect_clean();
      communicator.synchronize();
      outputs[call][rank] = y.mine().to_host();
    }
  });
  for (size_t call = 0; call < kCalls; ++call) {
    const std::vector<double> sum = sum_of(inputs[call], n);
    const double unit = dtype == float32 ? 1e-6 : dtype == float16 ? 1e-3 : 8e-3;
    for (int rank = 0; rank < ranks; ++rank)
      for (int64_t i = 0; i < n; ++i) {
        const double got = outputs[call][static_cast<size_t>(rank)].get(i);
        ASSERT_NEAR(got, sum[static_cast<size_t>(i)],
                    unit * (1 + std::abs(sum[static_cast<size_t>(i)]) * ranks))
            << "call " << call << ", rank " << rank << ", element " << i;
        ASSERT_EQ(got, outputs[call][0].get(i));
      }
  }
}

void check_all_reduce(int ranks, int64_t n, AllReduce::Kind kind, DataType dtype, uint64_t seed, int ctas) {
  check_all_reduce(Ranks::virtual_node(ranks, options(seed)), n, kind, dtype, seed, ctas);
}

TEST(AllReduce, AddsUpTheTensorsOfAllRanks) {
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const AllReduce::Kind kind : {AllReduce::Kind::kOneShot, AllReduce::Kind::kTwoShot})
      check_all_reduce(ranks, 5003, kind, float32, 1 + static_cast<uint64_t>(ranks), 2);
}

TEST(AllReduce, OfFewBytesGoesOneWay) {
  for (const auto& [ranks, n] : {std::pair{1, 1}, {2, 4096}, {3, 511}, {4, 1025}, {8, 7}})
    check_all_reduce(ranks, n, AllReduce::Kind::kLowLatency, float32, 1 + static_cast<uint64_t>(n), 2);
  for (const int64_t n : {2, 1022, 2050, 4096})
    check_all_reduce(2, n, AllReduce::Kind::kLowLatency, n % 4 == 0 ? float16 : bfloat16,
                     static_cast<uint64_t>(n), 2);
}

TEST(AllReduce, OfFewBytesIsCleanUnderFiftySeeds) {
  for (uint64_t seed = 0; seed < 50; ++seed)
    check_all_reduce(seed % 2 == 0 ? 2 : 3, 200, AllReduce::Kind::kLowLatency,
                     seed % 4 < 2 ? float32 : float16, seed, 2);
}

TEST(AllReduce, OfMoreThanWordsCanCarryIsRefused) {
  for (const auto& [dtype, n] : {std::pair{float32, 4097}, std::pair{float16, 3}, std::pair{float64, 2}})
    EXPECT_THAT(error_of([dtype = dtype, n = n] {
                  run_ranks(Ranks::virtual_node(1, options(0)), [&](Communicator& communicator) {
                    const SymmetricTensor x = communicator.symmetric(dtype, {n});
                    AllReduce(communicator, 2)(x, communicator.symmetric(dtype, {n}),
                                               AllReduce::Kind::kLowLatency);
                  });
                }),
                HasSubstr("carries at most 16384 bytes"));
}

TEST(AllReduce, HoldsForSizesThatNothingDivides) {
  for (const int64_t n : {1, 7, 2047, 2049, 12289})
    for (const AllReduce::Kind kind : {AllReduce::Kind::kOneShot, AllReduce::Kind::kTwoShot})
      check_all_reduce(3, n, kind, n % 2 == 0 ? float16 : bfloat16, static_cast<uint64_t>(n), 3);
}

TEST(AllReduce, IsCleanUnderFiftySeeds) {
  for (uint64_t seed = 0; seed < 50; ++seed)
    check_all_reduce(seed % 2 == 0 ? 2 : 4, 4500,
                     seed % 4 < 2 ? AllReduce::Kind::kOneShot : AllReduce::Kind::kTwoShot, float32, seed, 2);
}

constexpr AllReduce::Kind kKinds[] = {AllReduce::Kind::kOneShot, AllReduce::Kind::kTwoShot,
                                      AllReduce::Kind::kLowLatency};

/// Calls of all kinds by turns, on the same memory, by ranks that are late by random times.
void check_many_calls(const Ranks& where, int64_t calls) {
  constexpr int64_t n = 3001;
  constexpr size_t kInputs = 5;
  std::vector<std::vector<HostTensor>> inputs(kInputs);
  std::vector<std::vector<double>> sums;
  for (size_t i = 0; i < kInputs; ++i) {
    for (int rank = 0; rank < where.count(); ++rank)
      inputs[i].push_back(HostTensor::random(float32, {n}, 1 + i * 100 + static_cast<size_t>(rank)));
    sums.push_back(sum_of(inputs[i], n));
  }
  std::vector<HostTensor> results(static_cast<size_t>(where.count()));
  run_ranks(where, [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    const Device& device = communicator.device();
    AllReduce all_reduce(communicator, 3);
    const SymmetricTensor x = communicator.symmetric(float32, {n}), y = communicator.symmetric(float32, {n});
    const DeviceTensor history = DeviceTensor::empty(device, float32, {calls, n});
    std::vector<DeviceTensor> in;
    for (const std::vector<HostTensor>& input : inputs)
      in.push_back(DeviceTensor::from_host(device, input[rank]));
    for (const AllReduce::Kind kind : kKinds) all_reduce.prepare(x, y, kind);
    communicator.barrier();
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int64_t call = 0; call < calls; ++call) {
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      DeviceTensor mine = x.mine(), row = history[call];
      mine.copy_from(in[static_cast<size_t>(call) % kInputs]);
      all_reduce(x, y, kKinds[call / 2 % 3]).expect_clean();
      row.copy_from(y.mine());
    }
    communicator.synchronize();
    results[rank] = history.to_host();
  });
  for (const HostTensor& result : results)
    for (int64_t call = 0; call < calls; ++call)
      for (int64_t i = 0; i < n; ++i)
        ASSERT_NEAR(result.get(call * n + i),
                    sums[static_cast<size_t>(call) % kInputs][static_cast<size_t>(i)], 1e-5)
            << "call " << call << ", element " << i;
}

TEST(AllReduce, HoldsInManyCallsByRanksThatAreLate) {
  check_many_calls(Ranks::virtual_node(3, options(7)), 20);
}

TEST(AllReduce, TakesLargeBlocksWhereThereIsWorkForAll) {
  for (const AllReduce::Kind kind : {AllReduce::Kind::kOneShot, AllReduce::Kind::kTwoShot})
    check_all_reduce(2, 16385, kind, float16, 5, 1);
}

TEST(AllReduce, RefusesTensorsThatDiffer) {
  EXPECT_THAT(error_of([] {
                run_ranks(Ranks::virtual_node(1, options(0)), [&](Communicator& communicator) {
                  AllReduce all_reduce(communicator, 1);
                  all_reduce(communicator.symmetric(float32, {64}), communicator.symmetric(float32, {65}));
                });
              }),
              HasSubstr("x and y differ in type or shape"));
}

void check_rows(const Ranks& where, int64_t n, uint64_t seed, int64_t low_latency_bytes) {
  const int ranks = where.count();
  SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << n << " elements, seed " << seed);
  std::vector<HostTensor> inputs, gathered(static_cast<size_t>(ranks)), sums(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    inputs.push_back(HostTensor::random(float32, {n}, 1 + seed * 100 + static_cast<uint64_t>(rank)));
  run_ranks(where, [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    AllGather all_gather(communicator, 2, low_latency_bytes);
    ReduceScatter reduce_scatter(communicator, 2, low_latency_bytes);
    const DeviceTensor x = DeviceTensor::from_host(communicator.device(), inputs[rank]);
    DeviceTensor sum = DeviceTensor::empty(communicator.device(), float32, {n});
    const SymmetricTensor y = communicator.symmetric(float32, {ranks, n});
    DeviceTensor rows = y.mine();
    rows.poison();
    sum.poison();
    communicator.barrier();
    for (int call = 0; call < 2; ++call) {
      all_gather(x, y).expect_clean();
      // Every rank has the same rows: their sums are `ranks` times each.
      reduce_scatter(y, sum).expect_clean();
    }
    communicator.synchronize();
    gathered[rank] = rows.to_host();
    sums[rank] = sum.to_host();
  });
  for (int rank = 0; rank < ranks; ++rank)
    for (int64_t i = 0; i < n; ++i) {
      for (int row = 0; row < ranks; ++row)
        ASSERT_EQ(gathered[static_cast<size_t>(rank)].get(row * n + i),
                  inputs[static_cast<size_t>(row)].get(i));
      const double own = inputs[static_cast<size_t>(rank)].get(i);
      ASSERT_NEAR(sums[static_cast<size_t>(rank)].get(i), ranks * own, 1e-5 * (1 + std::abs(own)));
    }
}

TEST(AllGatherAndReduceScatter, MoveAndAddTheRowsOfAllRanks) {
  for (const auto& [ranks, n] : {std::pair{2, 9001}, {3, 1}, {3, 1001}, {8, 515}})
    for (uint64_t seed = 0; seed < 2; ++seed)
      check_rows(Ranks::virtual_node(ranks, options(seed)), n, seed, 0);
}
TEST(AllGatherAndReduceScatter, MoveAndAddFewBytesOneWay) {
  for (const auto& [ranks, n] : {std::pair{2, 2048}, {3, 1}, {3, 1001}, {8, 515}})
    for (uint64_t seed = 0; seed < 2; ++seed)
      check_rows(Ranks::virtual_node(ranks, options(seed)), n, seed, int64_t{1} << 20);
}

/// Rank r's y becomes the tile of rank r + 1, fetched by TMA, and its z that of rank r - 1, which stores it there by TMA.
struct TilesByTma {
  static constexpr const char* target = "sm_90a";
  void operator()(int ranks, int64_t rank_stride_bytes, Int32 rank, Ptr<float16> x_ptr, Ptr<float16> y_ptr,
                  Ptr<float16> z_ptr, Ptr<int32> signal_ptr, Ptr<int32> call_ptr) const {
    grid(1);
    warps(4);
    auto g_x = symmetric_view(x_ptr, float16, rank_stride_bytes, ranks, {30, 64});
    auto g_z = symmetric_view(z_ptr, float16, rank_stride_bytes, ranks, {30, 64});
    MeetingsOfCtas ctas_of_ranks(signal_ptr, call_ptr, 1, 2, ranks, rank_stride_bytes, rank);
    auto theirs = shared_tensor(float16, {32, 64}), mine = shared_tensor(float16, {32, 64});
    auto barrier = mbarrier::alloc(1);
    Int32 next = (rank + 1) % ranks;
    ctas_of_ranks.meet(0);
    if (auto warp = single_warp()) {
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(barrier, theirs.nbytes());
      tma::global_to_shared(g_x, theirs, {next, 0, 0}, barrier);
    }
    mbarrier::wait(barrier, 0);
    store_global(global_view(y_ptr, {30, 64}), load_shared(theirs), {0, 0});
    store_shared(mine, load_global(g_x[rank], {0, 0}, {32, 64}));
    fence::proxy_async();
    sync();
    if (auto warp = single_warp()) {
      tma::shared_to_global(mine, g_z, {next, 0, 0});
      tma::commit_group();
      tma::wait_group(0);
    }
    ctas_of_ranks.meet(1);
    ctas_of_ranks.end();
  }
};

void check_tma(const Ranks& where, uint64_t seed) {
  const auto count = static_cast<size_t>(where.count());
  std::vector<HostTensor> tiles, fetched(count), stored(count);
  for (uint64_t rank = 0; rank < count; ++rank)
    tiles.push_back(HostTensor::random(float16, {30, 64}, 1 + 10 * seed + rank));
  run_ranks(where, [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    Kernel<TilesByTma> kernel({}, communicator.device());
    const SymmetricTensor x = communicator.symmetric(float16, {30, 64}),
                          z = communicator.symmetric(float16, {30, 64});
    const SymmetricTensor signals = communicator.signals(MeetingsOfCtas::signals(2, 1, communicator.size()));
    DeviceTensor y = DeviceTensor::empty(communicator.device(), float16, {30, 64}), in = x.mine(),
                 out = z.mine();
    in.copy_from(tiles[rank]);
    out.poison();
    communicator.barrier();
    const DeviceTensor calls = DeviceTensor::from_host(communicator.device(), HostTensor(int32, {1}));
    kernel(communicator.size(), x.rank_stride_bytes(), communicator.rank(), x.all().address(), y,
           z.all().address(), signals.all().address(), calls)
        .expect_clean();
    communicator.synchronize();
    fetched[rank] = y.to_host();
    stored[rank] = out.to_host();
  });
  for (size_t rank = 0; rank < count; ++rank) {
    EXPECT_EQ(fetched[rank].to_doubles(), tiles[(rank + 1) % count].to_doubles());
    EXPECT_EQ(stored[rank].to_doubles(), tiles[(rank + count - 1) % count].to_doubles());
  }
}

TEST(SymmetricTensor, TmaReachesTheTilesOfPeers) {
  for (uint64_t seed = 0; seed < 5; ++seed) check_tma(Ranks::virtual_node(3, options(seed)), seed);
}

// ---- faults in kernels: each is the fault of one rule, and each is found

enum class Fault {
  kNone,
  kNoWait,           // reads before the peers have written
  kNoSet,            // never tells the others
  kGpuScope,         // signals of gpu scope
  kNoSecondMeeting,  // goes on before the peers have read
  kReused,           // a signal value of the call before
};

/// y = the sum of all ranks' x, one element per thread: OneShotAllReduce with a fault.
struct FaultySum {
  static constexpr const char* target = "sm_80";
  void operator()(int ranks, int64_t rank_stride_bytes, int fault, Int32 rank, Int32 call, Ptr<float32> x_ptr,
                  Ptr<float32> y_ptr, Ptr<int32> signal_ptr) const {
    grid(1);
    warps(4);
    const auto is = [&](Fault f) { return fault == static_cast<int>(f); };
    auto g_x = symmetric_view(x_ptr, float32, rank_stride_bytes, ranks, {128});
    auto g_y = global_view(y_ptr, {128});
    auto signals = symmetric_view(signal_ptr, int32, rank_stride_bytes, ranks, {2 * ranks});
    const semaphore::Options scope{.scope = is(Fault::kGpuScope) ? Scope::kGpu : Scope::kSystem};
    const auto meet = [&](int meeting) {
      if (!is(Fault::kNoSet))
        for (int peer = 0; peer < ranks; ++peer)
          semaphore::release(signals[peer][meeting * ranks + rank], call, scope);
      if (!is(Fault::kNoWait))
        for (int peer = 0; peer < ranks; ++peer)
          semaphore::wait_at_least(signals[rank][meeting * ranks + peer],
                                   is(Fault::kReused) ? call - 1 : call, scope);
    };
    meet(0);
    RegisterTensor sum = load_global(g_x[0], {0}, {128});
    for (int peer = 1; peer < ranks; ++peer) sum += load_global(g_x[peer], {0}, {128});
    store_global(g_y, sum, {0});
    if (!is(Fault::kNoSecondMeeting)) meet(1);
    store_global(g_x[rank], full(float32, {128}, 0), {0});
  }
};

/// What the virtual node finds, in one of 20 seeds, in two calls on three ranks.
std::string findings_of(Fault fault) {
  std::string text;
  for (uint64_t seed = 0; seed < 20 && text.empty(); ++seed) {
    std::vector<std::string> of_rank(3);
    run_ranks(Ranks::virtual_node(3, options(seed)), [&](Communicator& communicator) {
      Kernel<FaultySum> kernel({}, communicator.device());
      SymmetricTensor x = communicator.symmetric(float32, {128}), y = communicator.symmetric(float32, {128});
      SymmetricTensor signals = communicator.signals(6);
      DeviceTensor in = x.mine();
      in.fill(0);
      communicator.barrier();
      for (int call = 1; call <= 2; ++call)
        of_rank[static_cast<size_t>(communicator.rank())] +=
            kernel(3, x.rank_stride_bytes(), static_cast<int>(fault), communicator.rank(), call,
                   x.all().address(), y.mine(), signals.all().address())
                .virtual_report.format();
    });
    for (const std::string& one : of_rank) text += one;
  }
  return text;
}

TEST(FaultsBetweenRanks, ARightKernelHasNone) { EXPECT_EQ(findings_of(Fault::kNone), ""); }
TEST(FaultsBetweenRanks, AMissingWaitIsARace) {
  EXPECT_THAT(findings_of(Fault::kNoWait),
              AllOf(HasSubstr("race: "), HasSubstr("rank 1"), HasSubstr("parallel_test.cpp")));
}
TEST(FaultsBetweenRanks, AMissingSignalIsFoundByRankAndLine) {
  EXPECT_THAT(findings_of(Fault::kNoSet),
              AllOf(HasSubstr("endless-run: "), HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("rank 2"),
                    HasSubstr("wait_at_least")));
}
TEST(FaultsBetweenRanks, ScopesThatEndAtTheGpuAreNamed) {
  EXPECT_THAT(findings_of(Fault::kGpuScope), AllOf(HasSubstr("race: "), HasSubstr("Scope::kSystem")));
}
TEST(FaultsBetweenRanks, AMemoryWrittenBeforeAllHaveReadIsARace) {
  EXPECT_THAT(findings_of(Fault::kNoSecondMeeting), HasSubstr("race: "));
}
TEST(FaultsBetweenRanks, ASignalTakenForAnEarlierOneIsARace) {
  EXPECT_THAT(findings_of(Fault::kReused), HasSubstr("race: "));
}

// ---- ranks that fail

TEST(RunRanks, ARankThatEndsIsNamedOnTheOthers) {
  std::vector<std::string> errors(3);
  const std::string thrown = error_of([&] {
    run_ranks(Ranks::virtual_node(3, options(0)), [&](Communicator& communicator) {
      if (communicator.rank() == 1) throw DeviceError(Diagnostic{{}, "the disk is full", {}, ""});
      errors[static_cast<size_t>(communicator.rank())] = error_of([&] { communicator.barrier(); });
    });
  });
  EXPECT_THAT(thrown, HasSubstr("the disk is full"));
  for (const int rank : {0, 2})
    EXPECT_THAT(
        errors[static_cast<size_t>(rank)],
        AllOf(HasSubstr("rank 1 has ended and does not come to barrier"), HasSubstr("the disk is full")));
}

TEST(RunRanks, OtherCallsAreAnErrorOnAllRanks) {
  std::vector<std::string> errors(2);
  run_ranks(Ranks::virtual_node(2, options(0)), [&](Communicator& communicator) {
    errors[static_cast<size_t>(communicator.rank())] =
        error_of([&] { communicator.symmetric(float32, {64 + communicator.rank()}); });
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0 has come to symmetric(float32, [64]) at"),
                             HasSubstr("rank 1 has come to symmetric(float32, [65]) at"),
                             HasSubstr("parallel_test.cpp")));
}

TEST(RunRanks, ACollectiveThatOneRankMakesIsNamedByTheProgramsLine) {
  std::vector<std::string> errors(2);
  run_ranks(Ranks::virtual_node(2, options(0)), [&](Communicator& communicator) {
    errors[static_cast<size_t>(communicator.rank())] = error_of([&] {
      if (communicator.rank() == 0)
        AllReduce(communicator, 2);
      else
        AllGather(communicator, 3);
    });
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("parallel_test.cpp"), Not(HasSubstr("all_reduce.h")),
                             Not(HasSubstr("all_gather.h"))));
}

TEST(RunRanks, ARankThatIsLateIsNamedWithinTheTimeStated) {
  std::atomic<bool> is_over = false;
  std::string error;
  run_ranks(Ranks::virtual_node(2, options(0)).patience(0.05), [&](Communicator& communicator) {
    if (communicator.rank() == 1) {
      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    error = error_of([&] { communicator.barrier(); });
    is_over = true;
  });
  EXPECT_THAT(error,
              AllOf(HasSubstr("rank 1 has not come within 0.05 s, while rank 0 waits for barrier"),
                    HasSubstr("rank 0 has come to barrier at"), HasSubstr("rank 1 is in its host program")));
}

TEST(RunRanks, AKernelThatWaitsForARankThatEndedIsFoundOnAllRanks) {
  std::vector<std::string> reports(3);
  run_ranks(Ranks::virtual_node(3, options(0)), [&](Communicator& communicator) {
    AllReduce all_reduce(communicator, 1);
    SymmetricTensor x = communicator.symmetric(float32, {64});
    SymmetricTensor y = communicator.symmetric(float32, {64});
    const auto kind = AllReduce::Kind::kOneShot;
    all_reduce.prepare(x, y, kind);
    std::string& report = reports[static_cast<size_t>(communicator.rank())];
    if (communicator.rank() < 2) report = all_reduce(x, y, kind).virtual_report.format();
  });
  for (const int rank : {0, 1})
    EXPECT_THAT(reports[static_cast<size_t>(rank)],
                AllOf(HasSubstr("endless-run"), HasSubstr("signal::wait"), HasSubstr("rank 0"),
                      HasSubstr("rank 2 has ended"), HasSubstr("of symmetric allocation of rank"),
                      HasSubstr("which holds 0 and is waited for to be at least 1")));
}

TEST(RunRanks, MemoryAndGpusThatAreNotThereAreRefused) {
  EXPECT_THAT(error_of([] {
                run_ranks(Ranks::virtual_node(2, options(0)), [&](Communicator& communicator) {
                  communicator.symmetric(float32, {int64_t{1} << 40});
                });
              }),
              HasSubstr("raise Options::memory_bytes"));
  EXPECT_THROW(run_ranks(Ranks::virtual_node(17), [](Communicator&) {}), LaunchError);
  EXPECT_THAT(error_of([] { run_ranks(Ranks::cuda(1000), [](Communicator&) {}); }),
              HasSubstr("1000 ranks on CUDA devices"));
}

// ---- the same on GPUs

TEST(OnTwoGpus, AllReduceAddsUp) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  for (const int ranks : gpu_counts())
    for (const int64_t n : {1, 5003, 3000001})
      for (const AllReduce::Kind kind : {AllReduce::Kind::kOneShot, AllReduce::Kind::kTwoShot})
        check_all_reduce(Ranks::cuda(ranks).patience(20), n, kind, bfloat16, static_cast<uint64_t>(n), 64);
  for (const int ranks : gpu_counts())
    for (const int64_t n : {2, 5002, 131072})
      check_all_reduce(Ranks::cuda(ranks).patience(20), n, AllReduce::Kind::kLowLatency, bfloat16,
                       static_cast<uint64_t>(n), 64);
}

TEST(OnTwoGpus, RowsAreGatheredAndAddedUp) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  for (const int ranks : gpu_counts())
    for (const int64_t n : {1, 1001, 1000003})
      for (const int64_t low_latency_bytes : {int64_t{0}, int64_t{1} << 20})
        check_rows(Ranks::cuda(ranks).patience(20), n, 1, low_latency_bytes);
}

TEST(OnTwoGpus, TmaReachesTheTilesOfPeers) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  if (!Device::cuda(0).can_run("sm_90a")) IMBREX_SKIP(hopper);
  for (const int ranks : gpu_counts()) check_tma(Ranks::cuda(ranks).patience(20), 1);
}

TEST(OnTwoGpus, AThousandCallsByRanksThatAreLateAreRight) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  for (const int ranks : gpu_counts()) check_many_calls(Ranks::cuda(ranks).patience(20), 1000);
}

TEST(OnTwoGpus, AKernelThatWaitsInVainIsEnded) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  std::string error;
  double after = 0;
  run_ranks(Ranks::cuda(2).patience(2), [&](Communicator& communicator) {
    AllReduce all_reduce(communicator, 4);
    const SymmetricTensor x = communicator.symmetric(float32, {64}),
                          y = communicator.symmetric(float32, {64});
    all_reduce.prepare(x, y);
    if (communicator.rank() == 1) return;
    all_reduce(x, y);
    const auto begin = std::chrono::steady_clock::now();
    error = error_of([&] { communicator.synchronize(); });
    after = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  });
  EXPECT_THAT(error,
              AllOf(HasSubstr("rank 0: a kernel has not ended within 2 s"), HasSubstr("its signals: 0")));
  EXPECT_LT(after, 4);
}

TEST(OnTwoGpus, ARankThatFailsEndsTheWaitsOfTheOthers) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = error_of([] {
    run_ranks(Ranks::cuda(2).patience(30), [&](Communicator& communicator) {
      AllReduce all_reduce(communicator, 4);
      const SymmetricTensor x = communicator.symmetric(float32, {64}),
                            y = communicator.symmetric(float32, {64});
      all_reduce.prepare(x, y);
      communicator.barrier();
      if (communicator.rank() == 1) throw DeviceError(Diagnostic{{}, "the disk is full", {}, ""});
      all_reduce(x, y);
      communicator.synchronize();
    });
  });
  EXPECT_THAT(error, HasSubstr("the disk is full"));
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 20);
}

TEST(SymmetricTensor, CanBeViewedAsOthers) {
  run_ranks(Ranks::virtual_node(3, options(0)), [&](Communicator& communicator) {
    const SymmetricTensor bytes = communicator.symmetric(uint8, {4096});
    const SymmetricTensor view = bytes.viewed_as(float32, {16, 64});
    EXPECT_EQ(view.mine().address(), bytes.mine().address());
    EXPECT_EQ(view.all().address(), bytes.all().address());
    EXPECT_EQ(view.all()[communicator.rank()].address(), bytes.mine().address());
    EXPECT_EQ(view.rank_stride_bytes(), bytes.rank_stride_bytes());
    EXPECT_EQ(view.all().shape(), (std::vector<int64_t>{3, 16, 64}));
    EXPECT_THAT(error_of([&] { (void)bytes.viewed_as(float32, {1025}); }),
                HasSubstr("4100 bytes of 4096 that there are"));
  });
}

TEST(RunRanks, TextsAreGathered) {
  std::vector<std::vector<std::string>> all(3);
  run_ranks(Ranks::virtual_node(3, options(0)), [&](Communicator& communicator) {
    all[static_cast<size_t>(communicator.rank())] =
        communicator.gather("from " + std::to_string(communicator.rank()));
  });
  for (const auto& texts : all) EXPECT_THAT(texts, ::testing::ElementsAre("from 0", "from 1", "from 2"));
}

}  // namespace
}  // namespace imbrex::parallel
