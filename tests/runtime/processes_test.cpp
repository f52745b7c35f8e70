// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes: this program starts itself once per rank, as a launcher does. Each rank checks its results
// itself and prints what the test compares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "../skip.h"
#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "runtime/host/process.h"
#include "runtime/parallel/job.h"

namespace imbrex::parallel {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

vgpu::Options options(uint64_t seed = 3) {
  // One host thread: with more, which of two accesses that race comes first differs from run to run.
  vgpu::Options options{.target = "sm_90a", .num_sms = 4, .host_threads = 1, .seed = seed};
  options.memory_bytes = int64_t{1} << 26;
  return options;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error\n";
}

// ---- what ranks do

/// All-reduces of several sizes and kinds, compared with sums in float64; the second by a captured graph.
void all_reduces(Communicator& ranks) {
  for (const int64_t n : {1, 777, 9001})
    for (const AllReduce::Kind kind : {AllReduce::Kind::kOneShot, AllReduce::Kind::kTwoShot}) {
      AllReduce all_reduce(ranks, 2);
      const SymmetricTensor x = ranks.symmetric(float32, {n}), y = ranks.symmetric(float32, {n});
      const Stream stream = Stream::create(ranks.device());
      all_reduce.prepare(x, y, kind);
      for (const bool by_graph : {false, true}) {
        std::vector<double> sum(static_cast<size_t>(n));
        DeviceTensor mine = x.mine(), out = y.mine();
        out.poison();
        for (int rank = 0; rank < ranks.size(); ++rank) {
          const auto seed = static_cast<uint64_t>(1 + 100 * n + 10 * by_graph + rank);
          const HostTensor input = HostTensor::random(float32, {n}, seed);
          if (rank == ranks.rank()) mine.copy_from(input);
          for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] += input.get(i);
        }
        ranks.barrier();
        if (by_graph) {
          const Graph graph = Graph::capture(stream, [&] { all_reduce(x, y, kind, stream); });
          graph.launch(stream).expect_clean();
        } else {
          all_reduce(x, y, kind, stream).expect_clean();
        }
        ranks.synchronize(stream);
        const HostTensor got = y.mine().to_host();
        for (int64_t i = 0; i < n; ++i)
          if (!(std::abs(got.get(i) - sum[static_cast<size_t>(i)]) < 1e-5)) {
            std::printf("WRONG: rank %d, element %d of %d\n", ranks.rank(), int(i), int(n));
            return;
          }
        ranks.barrier();
      }
    }
  std::printf("right\n");
}

/// All-gather and reduce-scatter, compared element by element.
void rows(Communicator& ranks) {
  for (const int64_t n : {1, 1003}) {
    AllGather all_gather(ranks, 2);
    ReduceScatter reduce_scatter(ranks, 2);
    const SymmetricTensor all = ranks.symmetric(float32, {ranks.size(), n});
    const DeviceTensor row = DeviceTensor::empty(ranks.device(), float32, {n});
    const auto input = [&](int rank) {
      return HostTensor::random(float32, {n}, static_cast<uint64_t>(n + rank));
    };
    DeviceTensor in = row, gathered = all.mine();
    in.copy_from(input(ranks.rank()));
    gathered.poison();
    ranks.barrier();
    all_gather(row, all).expect_clean();
    reduce_scatter(all, row).expect_clean();
    ranks.synchronize();
    const HostTensor got = all.mine().to_host(), sum = row.to_host();
    for (int rank = 0; rank < ranks.size(); ++rank)
      for (int64_t i = 0; i < n; ++i)
        if (got.get(rank * n + i) != input(rank).get(i) ||
            !(std::abs(sum.get(i) - ranks.size() * input(ranks.rank()).get(i)) < 1e-5)) {
          std::printf("WRONG: rank %d, element %d of %d\n", ranks.rank(), int(i), int(n));
          return;
        }
    ranks.barrier();
  }
  std::printf("right\n");
}

/// The three products fused with collectives, with steps, of rows that the ranks do not divide.
void products(Communicator& ranks) {
  const int64_t m = 67, n = 40, k = 136;
  const auto operand = [&](int64_t rows, int rank, int which) {
    return HostTensor::random(bfloat16, {rows, k}, static_cast<uint64_t>(1000 * which + rank + 1));
  };
  const HostTensor bias = HostTensor::random(float32, {n}, 7);
  const auto mine = RowsOfRank::of(m, ranks.size(), ranks.rank());
  const Device& device = ranks.device();
  const FusedOptions steps{.bias = DeviceTensor::from_host(device, bias), .activation = Activation::kRelu};
  const auto check = [&](const char* what, const DeviceTensor& got, const std::vector<double>& sums) {
    const HostTensor host = got.to_host();
    for (int64_t i = 0; i < host.elements(); ++i) {
      const double wanted = std::max(sums[static_cast<size_t>(i)] + bias.get(i % n), 0.0);
      if (!(std::abs(host.get(i) - wanted) < 0.03 * (std::abs(wanted) + 12)))
        std::printf("WRONG: %s, rank %d, element %d: %g, not %g\n", what, ranks.rank(), int(i), host.get(i),
                    wanted);
    }
  };
  const auto add_product = [&](std::vector<double>& sums, const HostTensor& a, const HostTensor& b,
                               RowsOfRank rows) {
    sums.resize(static_cast<size_t>(rows.count * n));
    for (int64_t i = 0; i < rows.count; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t l = 0; l < k; ++l)
          sums[static_cast<size_t>(i * n + j)] += a.get((rows.first + i) * k + l) * b.get(j * k + l);
  };
  const auto part_of = [&](const HostTensor& all) {
    HostTensor part(all.dtype(), {mine.count, k});
    for (int64_t i = 0; i < mine.count * k; ++i) part.set(i, all.get(mine.first * k + i));
    return part;
  };
  const RowsOfRank all_rows{0, m};
  const HostTensor x = operand(m, 0, 0), b = operand(n, ranks.rank(), 1), a = operand(m, ranks.rank(), 2);
  const DeviceTensor device_b = DeviceTensor::from_host(device, b),
                     device_a = DeviceTensor::from_host(device, a);

  AllGatherMatmul gather(ranks, {.m = m + 1, .k = k});
  DeviceTensor c = DeviceTensor::empty(device, bfloat16, {m, n});
  c.poison();
  gather(DeviceTensor::from_host(device, part_of(x)), device_b, c, steps).expect_clean();
  ranks.synchronize();
  std::vector<double> gathered, sums, my_sums;
  add_product(gathered, x, b, all_rows);
  check("all-gather + matmul", c, gathered);
  for (int rank = 0; rank < ranks.size(); ++rank) {
    add_product(sums, operand(m, rank, 2), operand(n, rank, 1), all_rows);
    add_product(my_sums, operand(m, rank, 2), operand(n, rank, 1), mine);
  }
  MatmulReduceScatter scatter(ranks, {.m = m, .n = n});
  DeviceTensor y = DeviceTensor::empty(device, bfloat16, {mine.count, n});
  y.poison();
  scatter(device_a, device_b, y, steps).expect_clean();
  ranks.synchronize();
  check("matmul + reduce-scatter", y, my_sums);

  MatmulAllReduce reduce(ranks, {.m = m, .n = n});
  const SymmetricTensor all = ranks.symmetric(bfloat16, {m, n});
  DeviceTensor everywhere = all.mine();
  everywhere.poison();
  ranks.barrier();
  reduce(device_a, device_b, all, steps).expect_clean();
  ranks.synchronize();
  check("matmul + all-reduce", everywhere, sums);
  std::printf("right\n");
}

/// Every rank stores to the next one and reads its own, and nothing orders the two.
struct Racing {
  static constexpr const char* target = "sm_80";
  void operator()(int ranks, int64_t rank_stride_bytes, Int32 rank, Ptr<> x_ptr, Ptr<float32> y_ptr) const {
    grid(1);
    warps(1);
    auto g_x = symmetric_view(x_ptr, float32, rank_stride_bytes, ranks, {32});
    auto g_y = global_view(y_ptr, {32});
    store_global(g_x[(rank + 1) % ranks], full(float32, {32}, 1.0f), {0});
    store_global(g_y, load_global(g_x[rank], {0}, {32}), {0});
  }
};

void race(Communicator& ranks) {
  const SymmetricTensor x = ranks.symmetric(float32, {32});
  const DeviceTensor y = DeviceTensor::empty(ranks.device(), float32, {32});
  ranks.barrier();
  Kernel<Racing> kernel({}, ranks.device());
  const LaunchReport report = kernel(ranks.size(), x.rank_stride_bytes(), ranks.rank(), x.all().address(), y);
  std::printf("%s\n", report.virtual_report.format().c_str());
}

/// PTX of another compiler, launched with its arguments one by one.
void foreign_ptx(Communicator& ranks) {
  const PtxModule module(ranks.device(), R"(
.version 8.0
.target sm_80
.address_size 64
.visible .entry numbers(.param .u64 out, .param .u32 first) {
  .reg .u64 %a, %b; .reg .u32 %i, %f;
  ld.param.u64 %a, [out];
  ld.param.u32 %f, [first];
  mov.u32 %i, %tid.x;
  mul.wide.u32 %b, %i, 4;
  add.u64 %a, %a, %b;
  add.u32 %i, %i, %f;
  st.global.u32 [%a], %i;
  ret;
})");
  const DeviceTensor out = DeviceTensor::empty(ranks.device(), int32, {32});
  uint64_t address = out.address();
  int32_t first = 100 * ranks.rank();
  void* arguments[] = {&address, &first};
  module.launch("numbers", {.grid = {1}, .block = {32}, .arguments = arguments}).expect_clean();
  const HostTensor got = out.to_host();
  for (int i = 0; i < 32; ++i)
    if (got.get(i) != first + i) std::printf("WRONG: %d is %g\n", i, got.get(i));
  std::printf("right\n");
}

const std::map<std::string, std::function<void(Communicator&)>> kBodies = {
    {"all-reduces", all_reduces},
    {"rows", rows},
    {"products", products},
    {"race", race},
    {"foreign PTX", foreign_ptx},
    {"dies",
     [](Communicator& ranks) {
       ranks.barrier();
       if (ranks.rank() == 1) kill(getpid(), SIGKILL);
       std::printf("%s", error_of([&] { ranks.barrier(); }).c_str());
     }},
    {"rank 0 dies",
     [](Communicator& ranks) {
       ranks.barrier();
       if (ranks.rank() == 0) kill(getpid(), SIGKILL);
       std::printf("%s", error_of([&] { ranks.barrier(); }).c_str());
     }},
    {"throws",
     [](Communicator& ranks) {
       if (ranks.rank() == 1) throw DeviceError(Diagnostic{{}, "the disk is full", {}, ""});
       ranks.barrier();
     }},
    {"other shape",
     [](Communicator& ranks) {
       std::printf("%s", error_of([&] { ranks.symmetric(float32, {64 + ranks.rank()}); }).c_str());
     }},
    {"late",
     [](Communicator& ranks) {
       if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5000));
       std::printf("%s", error_of([&] { ranks.barrier(); }).c_str());
     }},
    {"waits for one that ended",
     [](Communicator& ranks) {
       AllReduce all_reduce(ranks, 1);
       const SymmetricTensor x = ranks.symmetric(float32, {64}), y = ranks.symmetric(float32, {64});
       if (ranks.rank() == 1) return;
       std::printf("%s\n", all_reduce(x, y).virtual_report.format().c_str());
     }},
    {"calls that are wrong",
     [](Communicator& ranks) {
       std::printf("%s", error_of([&] { PtxModule(ranks.device(), "no PTX"); }).c_str());
       std::printf("%s", error_of([&] { ranks.symmetric(float32, {int64_t{1} << 40}); }).c_str());
     }},
    {"texts",
     [](Communicator& ranks) {
       for (const std::string& text : ranks.gather("from " + std::to_string(ranks.rank())))
         std::printf("%s, ", text.c_str());
     }},
    {"nothing", [](Communicator&) { std::printf("came\n"); }},
    {"kernel that waits in vain",
     [](Communicator& ranks) {
       AllReduce all_reduce(ranks, 4);
       const SymmetricTensor x = ranks.symmetric(float32, {64}), y = ranks.symmetric(float32, {64});
       all_reduce.prepare(x, y);
       ranks.barrier();
       if (ranks.rank() == 1) {
         std::this_thread::sleep_for(std::chrono::seconds(4));
         return;
       }
       const Stream stream = Stream::create(ranks.device());
       all_reduce(x, y, AllReduce::Kind::kAuto, stream);
       std::printf("%s", error_of([&] { ranks.synchronize(stream); }).c_str());
     }},
    {"dies while a kernel waits", [](Communicator& ranks) {
       AllReduce all_reduce(ranks, 4);
       const SymmetricTensor x = ranks.symmetric(float32, {64}), y = ranks.symmetric(float32, {64});
       all_reduce.prepare(x, y);
       ranks.barrier();
       if (ranks.rank() == 1) kill(getpid(), SIGKILL);
       all_reduce(x, y);
       std::printf("%s", error_of([&] { ranks.synchronize(); }).c_str());
     }}};

int run_as_rank(const std::string& body, const std::string& kind, double patience) try {
  run_ranks(Ranks::from_environment(kind, options()).patience(patience), kBodies.at(body));
  return 0;
} catch (const Error& error) {
  std::printf("%s", error.what());
  return 1;
}

// ---- how they are started; the shortest patience is longer than a busy machine takes to start a process

const std::string kProgram = std::filesystem::read_symlink("/proc/self/exe");

struct Rank {
  int exit_code = 0;
  std::string output;
  double seconds = 0;
};

/// Runs the ranks `from` to `to` - 1 of `ranks` as processes.
std::vector<Rank> run(const std::string& body, int ranks, const std::string& kind = "virtual",
                      double patience = 20, int from = 0, int to = -1) {
  static int jobs = 0;
  const std::string job = "IMBREX_JOB=test " + std::to_string(getpid()) + " " + std::to_string(jobs++);
  if (to < 0) to = ranks;
  std::vector<Rank> results(static_cast<size_t>(to - from));
  std::vector<std::thread> threads;
  for (int rank = from; rank < to; ++rank)
    threads.emplace_back([&, rank] {
      Rank& result = results[static_cast<size_t>(rank - from)];
      const auto begin = std::chrono::steady_clock::now();
      const std::string number = std::to_string(rank);
      const bool shares = std::getenv("IMBREX_RANKS_SHARE_GPU") != nullptr;
      const runtime::ProcessResult process = runtime::run_process(
          {"/usr/bin/env", "RANK=" + number, "LOCAL_RANK=" + number, "WORLD_SIZE=" + std::to_string(ranks),
           "LOCAL_WORLD_SIZE=" + std::to_string(ranks), job, "NCCL_HOSTID=server " + (shares ? number : "0"),
           kProgram, "--rank", body, kind, std::to_string(patience)},
          60);
      result = {process.exit_code, process.output,
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
      EXPECT_FALSE(process.timed_out) << "rank " << rank << " hangs: " << process.output;
    });
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::vector<std::string> outputs(const std::vector<Rank>& ranks) {
  std::vector<std::string> texts;
  for (const Rank& rank : ranks) texts.push_back(rank.output);
  return texts;
}

TEST(Processes, AllReduceAddsUp) {
  for (const int ranks : {1, 2, 4}) EXPECT_THAT(outputs(run("all-reduces", ranks)), Each("right\n"));
}

TEST(Processes, RowsAreGatheredAndAddedUp) { EXPECT_THAT(outputs(run("rows", 3)), Each("right\n")); }

TEST(Processes, ProductsFusedWithCollectivesAreRight) {
  EXPECT_THAT(outputs(run("products", 3)), Each("right\n"));
}

TEST(Processes, RacesBetweenRanksAreFoundAndDependOnTheSeedAlone) {
  const std::vector<std::string> first = outputs(run("race", 3)), second = outputs(run("race", 3));
  EXPECT_THAT(first, ::testing::Contains(AllOf(HasSubstr("race: "), HasSubstr("rank 0"), HasSubstr("rank 1"),
                                               HasSubstr("processes_test.cpp"))));
  EXPECT_EQ(first, second);
}

TEST(Processes, ForeignPtxIsLaunched) { EXPECT_THAT(outputs(run("foreign PTX", 2)), Each("right\n")); }

TEST(Processes, TextsAreGathered) { EXPECT_THAT(outputs(run("texts", 3)), Each("from 0, from 1, from 2, ")); }

TEST(Processes, ARankThatDiesIsNamedOnTheOthersAtOnce) {
  const std::vector<Rank> ranks = run("dies", 3);
  EXPECT_EQ(ranks[1].exit_code, 128 + SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(ranks[static_cast<size_t>(rank)].output,
                AllOf(HasSubstr("rank 1 is gone: its process ("), HasSubstr("has ended without a word")));
    EXPECT_LT(ranks[static_cast<size_t>(rank)].seconds, 15);
  }
}

TEST(Processes, TheOthersGetToKnowThatRank0HasDied) {
  const std::vector<Rank> ranks = run("rank 0 dies", 3);
  for (const int rank : {1, 2}) {
    EXPECT_THAT(ranks[static_cast<size_t>(rank)].output, HasSubstr("rank 0 is gone"));
    EXPECT_LT(ranks[static_cast<size_t>(rank)].seconds, 15);
  }
}

TEST(Processes, AnErrorOfOneRankIsToldToTheOthers) {
  const std::vector<Rank> ranks = run("throws", 3);
  EXPECT_THAT(ranks[1].output, HasSubstr("the disk is full"));
  for (const int rank : {0, 2})
    EXPECT_THAT(
        ranks[static_cast<size_t>(rank)].output,
        AllOf(HasSubstr("rank 1 has ended and does not come to barrier"), HasSubstr("the disk is full")));
  for (const Rank& rank : ranks) EXPECT_EQ(rank.exit_code, 1);
}

TEST(Processes, OtherShapesAreAnErrorOnAllRanks) {
  EXPECT_THAT(outputs(run("other shape", 2)),
              Each(AllOf(HasSubstr("symmetric(float32, [64])"), HasSubstr("symmetric(float32, [65])"),
                         HasSubstr("processes_test.cpp"))));
}

TEST(Processes, ARankThatIsLateIsNamedWithinTheTimeStated) {
  const std::vector<Rank> ranks = run("late", 2, "virtual", 3);
  EXPECT_THAT(ranks[0].output, HasSubstr("rank 1 has not come within 3 s, while rank 0 waits for barrier"));
  EXPECT_THAT(ranks[1].output, HasSubstr("rank 1 has not come within 3 s"));
}

TEST(Processes, RanksThatWereNotStartedAreNamed) {
  for (const Rank& rank : run("nothing", 4, "virtual", 3, 0, 2)) {
    EXPECT_THAT(rank.output, HasSubstr("rank 2, 3 of 4 ranks have not come within 3 s"));
    EXPECT_EQ(rank.exit_code, 1);
  }
  for (const Rank& rank : run("nothing", 3, "virtual", 3, 1, 3))
    EXPECT_THAT(rank.output, HasSubstr("rank 0 has not come within 3 s"));
}

TEST(Processes, AKernelThatWaitsForARankThatEndedIsFound) {
  EXPECT_THAT(run("waits for one that ended", 2)[0].output,
              AllOf(HasSubstr("endless-run"), HasSubstr("signal::wait"), HasSubstr("rank 0")));
}

TEST(Processes, ErrorsOfTheVirtualGpuReachTheRankThatMadeThem) {
  for (const std::string& output : outputs(run("calls that are wrong", 2)))
    EXPECT_THAT(output, AllOf(HasSubstr("raise Options::memory_bytes"), HasSubstr("module.ptx:1")));
}

// ---- the same on GPUs

/// IMBREX_RANKS_SHARE_GPU=1 lets the ranks take turns on one.
bool lacks_two_gpus() {
  return Ranks::cuda_devices() < (std::getenv("IMBREX_RANKS_SHARE_GPU") == nullptr ? 2 : 1);
}

TEST(ProcessesOnTwoGpus, AllReduceAddsUp) {
  if (lacks_two_gpus()) IMBREX_SKIP(two_gpus);
  EXPECT_THAT(outputs(run("all-reduces", 2, "cuda")), Each("right\n"));
}

TEST(ProcessesOnTwoGpus, ProductsFusedWithCollectivesAreRight) {
  if (lacks_two_gpus()) IMBREX_SKIP(two_gpus);
  if (!Device::cuda(0).can_run("sm_90a")) IMBREX_SKIP(hopper);
  EXPECT_THAT(outputs(run("products", 2, "cuda")), Each("right\n"));
}

TEST(ProcessesOnTwoGpus, AKernelThatWaitsInVainOnAStreamOfTheProgramIsEnded) {
  if (lacks_two_gpus()) IMBREX_SKIP(two_gpus);
  const std::vector<Rank> ranks = run("kernel that waits in vain", 2, "cuda", 2);
  EXPECT_THAT(ranks[0].output,
              AllOf(HasSubstr("rank 0: a kernel has not ended within 2 s"), HasSubstr("its signals: 0")));
  EXPECT_LT(ranks[0].seconds, 20);
}

TEST(ProcessesOnTwoGpus, KernelsThatWaitForARankThatDiesAreEnded) {
  if (lacks_two_gpus()) IMBREX_SKIP(two_gpus);
  const std::vector<Rank> ranks = run("dies while a kernel waits", 2, "cuda", 30);
  EXPECT_THAT(ranks[0].output, AllOf(HasSubstr("rank 0: the waits of its kernels were ended"),
                                     HasSubstr("rank 1 is gone: its process")));
  EXPECT_LT(ranks[0].seconds, 25);
}

TEST(Processes, WithoutPeersTheHostProgramsCarryWhatCollectivesNeed) {
  setenv("IMBREX_NO_PEERS", "1", 1);
  for (const char* body : {"rows", "products"}) EXPECT_THAT(outputs(run(body, 3)), Each("right\n")) << body;
  EXPECT_THAT(outputs(run("race", 2)), Each(HasSubstr("kernels cannot reach the memory of other ranks")));
  EXPECT_THAT(outputs(run("all-reduces", 2)), Each(HasSubstr("capture")));
  unsetenv("IMBREX_NO_PEERS");
}

/// Ranks that go through NCCL. On one GPU they say to be on servers of their own, for NCCL refuses two on one.
class ProcessesWithoutPeers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Ranks::cuda_devices() == 0) IMBREX_SKIP(gpu);
    setenv("IMBREX_NO_PEERS", "1", 1);
    if (Ranks::cuda_devices() == 1) setenv("IMBREX_RANKS_SHARE_GPU", "1", 1);
    if (outputs(run("nothing", 1, "cuda"))[0].find("there is no NCCL to use instead") != std::string::npos)
      IMBREX_SKIP(nccl);
  }
  void TearDown() override {
    unsetenv("IMBREX_NO_PEERS");
    unsetenv("IMBREX_RANKS_SHARE_GPU");
  }
};

TEST_F(ProcessesWithoutPeers, AllReduceAddsUp) {
  const std::vector<std::string> texts = outputs(run("all-reduces", 2, "cuda"));
  EXPECT_THAT(texts[0], AllOf(HasSubstr("collectives go through NCCL 2."), HasSubstr("right\n")));
  EXPECT_EQ(texts[1], "right\n");
}

TEST_F(ProcessesWithoutPeers, RowsAreGatheredAndAddedUp) {
  EXPECT_THAT(outputs(run("rows", 2, "cuda")), Each(HasSubstr("right\n")));
}

TEST_F(ProcessesWithoutPeers, ProductsAndCollectivesOneAfterTheOther) {
  const std::vector<std::string> texts = outputs(run("products", 2, "cuda"));
  EXPECT_THAT(texts[0], ::testing::EndsWith("other ranks\nright\n"));
  EXPECT_EQ(texts[1], "right\n");
}

TEST_F(ProcessesWithoutPeers, KernelsCannotReachOtherRanks) {
  EXPECT_THAT(outputs(run("race", 2, "cuda")),
              Each(HasSubstr("kernels cannot reach the memory of other ranks")));
}

TEST_F(ProcessesWithoutPeers, ACollectiveThatWaitsForARankThatDiesIsEnded) {
  const std::vector<Rank> ranks = run("dies while a kernel waits", 2, "cuda", 30);
  // NCCL connects in its first call, and may be the first to see that the other rank is gone.
  EXPECT_THAT(ranks[0].output,
              ::testing::AnyOf(HasSubstr("rank 1 is gone: its process"), HasSubstr("ncclAllReduce: ")));
  EXPECT_LT(ranks[0].seconds, 25);
}

TEST_F(ProcessesWithoutPeers, ACollectiveToWhichARankDoesNotComeIsEnded) {
  const std::vector<Rank> ranks = run("kernel that waits in vain", 2, "cuda", 3);
  EXPECT_THAT(ranks[0].output, ::testing::AnyOf(HasSubstr("rank 0: a kernel has not ended within 3 s"),
                                                HasSubstr("it is not connected to all ranks within 3 s"),
                                                HasSubstr("rank 1")));
  EXPECT_LT(ranks[0].seconds, 20);
}

// ---- what launchers say

runtime::Job job_of(const std::map<std::string, std::string>& variables) {
  return runtime::job_of_environment([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

TEST(Job, IsWhatTheLaunchersVariablesSay) {
  const runtime::Job torchrun = job_of({{"RANK", "5"},
                                        {"WORLD_SIZE", "8"},
                                        {"LOCAL_RANK", "1"},
                                        {"LOCAL_WORLD_SIZE", "4"},
                                        {"MASTER_ADDR", "10.0.0.1"},
                                        {"MASTER_PORT", "29500"}});
  EXPECT_EQ(torchrun.rank, 5);
  EXPECT_EQ(torchrun.size, 8);
  EXPECT_EQ(torchrun.local_rank, 1);
  EXPECT_EQ(torchrun.local_size, 4);
  EXPECT_THAT(torchrun.name, AllOf(HasSubstr("10.0.0.1"), HasSubstr("29500")));

  const runtime::Job mpirun = job_of({{"OMPI_COMM_WORLD_RANK", "2"},
                                      {"OMPI_COMM_WORLD_SIZE", "3"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                                      {"SLURM_PROCID", "0"},
                                      {"SLURM_NTASKS", "3"}});
  EXPECT_EQ(mpirun.launcher, "mpirun (Open MPI)");
  EXPECT_EQ(mpirun.rank, 2);

  const runtime::Job step = job_of({{"SLURM_PROCID", "3"},
                                    {"SLURM_STEP_NUM_TASKS", "4"},
                                    {"SLURM_LOCALID", "3"},
                                    {"SLURM_JOB_ID", "77"},
                                    {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(step.size, 4);
  EXPECT_EQ(step.local_size, 4);
  EXPECT_THAT(step.name, HasSubstr("77"));
  const runtime::Job of_nodes = job_of({{"SLURM_PROCID", "3"},
                                        {"SLURM_STEP_NUM_TASKS", "4"},
                                        {"SLURM_LOCALID", "1"},
                                        {"SLURM_STEP_NUM_NODES", "2"}});
  EXPECT_LT(of_nodes.local_size, of_nodes.size);
}

TEST(Job, OfABatchScriptAndOfNoLauncherIsASingleRank) {
  EXPECT_EQ(job_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).size, 1);
  EXPECT_EQ(job_of({}).size, 1);
  EXPECT_EQ(job_of({{"RANK", "3"}}).rank, 0);  // without the number of ranks it is something else
}

TEST(Job, WhoseVariablesMakeNoSenseIsRefused) {
  EXPECT_THAT(error_of([] {
                job_of({{"RANK", "zero"}, {"WORLD_SIZE", "2"}});
              }),
              HasSubstr("RANK is 'zero', not a number"));
  EXPECT_THAT(error_of([] {
                job_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}});
              }),
              AllOf(HasSubstr("rank 2 of 2"), HasSubstr("torchrun")));
}

TEST(Job, OnSeveralServersIsRefused) {
  setenv("RANK", "0", 1), setenv("WORLD_SIZE", "4", 1), setenv("LOCAL_RANK", "0", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  EXPECT_THAT(error_of([] { Communicator::join(Ranks::from_environment("virtual", options())); }),
              HasSubstr("4 ranks, of which 2 are on this server"));
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) unsetenv(name);
}

TEST(Join, IsForRanksThatAreProcesses) {
  EXPECT_THAT(error_of([] { Communicator::join(Ranks::virtual_node(2)); }),
              HasSubstr("these ranks are threads of one process"));
  Communicator alone = Communicator::join(Ranks::from_environment("virtual", options()));
  EXPECT_EQ(alone.size(), 1);
  alone.barrier();
  alone.leave();
  alone.leave();
}

TEST(Join, TakesRanksThatTheProgramKnowsItself) {
  EXPECT_THAT(error_of([] { Ranks::of_process(2, 2, "a job", "virtual", options()); }),
              HasSubstr("rank 2 of 2"));
  EXPECT_THAT(error_of([] { Ranks::of_process(0, 1, "a job", "graphics", options()); }),
              HasSubstr("ranks on 'graphics'"));
  Communicator alone = Communicator::join(Ranks::of_process(0, 1, "a job", "virtual", options()));
  EXPECT_TRUE(alone.reaches_peers());
  const SymmetricTensor x = alone.symmetric(float32, {4});
  EXPECT_THAT(error_of([&] { alone.all_reduce_by_nccl(x.mine(), x.mine(), {}); }), HasSubstr("use no NCCL"));
}

}  // namespace
}  // namespace imbrex::parallel

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--rank")
    return imbrex::parallel::run_as_rank(argv[2], argv[3], std::stod(argv[4]));
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
