// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes: this program starts itself once per rank, as a launcher does. Each rank checks its results
// itself and prints what the test compares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "../skip.h"
#include "gpu_counts.h"
#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "rank_bodies.h"
#include "runtime/host/channel.h"
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

/// Ends this process when it has a second socket: the first is connected then, and has told rank 0 who it is.
void end_once_connected() {
  namespace fs = std::filesystem;
  for (int sockets = 0; sockets < 2;) {
    sockets = 0;
    for (const auto& file : fs::directory_iterator("/proc/self/fd")) {
      std::error_code closed_meanwhile;
      sockets += fs::read_symlink(file.path(), closed_meanwhile).string().starts_with("socket:") ? 1 : 0;
    }
  }
  kill(getpid(), SIGKILL);
}

int run_as_rank(const std::string& body, const std::string& kind, double patience) try {
  if (body == "ends while it joins" && std::string_view(std::getenv("RANK")) == "1")
    std::thread(end_once_connected).detach();
  run_ranks(Ranks::from_environment(kind, options()).patience(patience), rank_bodies.at(body));
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

/// What is known at once comes long before a patience of so many seconds, on a busy machine too.
constexpr double kPatient = 200, kAtOnce = 100;

/// Set while the ranks pretend to be on servers of their own, which meet here.
std::string address_of_servers;

/// Runs the ranks `from` to `to` - 1 of `ranks` as processes.
std::vector<Rank> run(const std::string& body, int ranks, const std::string& kind = "virtual",
                      double patience = 20, int from = 0, int to = -1) {
  static int jobs = 0;
  const std::string job = "test " + std::to_string(getpid()) + " " + std::to_string(jobs++);
  if (to < 0) to = ranks;
  std::vector<Rank> results(static_cast<size_t>(to - from));
  std::vector<std::thread> threads;
  for (int rank = from; rank < to; ++rank)
    threads.emplace_back([&, rank] {
      Rank& result = results[static_cast<size_t>(rank - from)];
      const auto begin = std::chrono::steady_clock::now();
      const std::string number = std::to_string(rank);
      const bool apart = !address_of_servers.empty();
      const bool shares = std::getenv("IMBREX_RANKS_SHARE_GPU") != nullptr || apart;
      const runtime::ProcessResult process = runtime::run_process(
          {"/usr/bin/env", "RANK=" + number, "LOCAL_RANK=" + (apart ? "0" : number),
           "WORLD_SIZE=" + std::to_string(ranks), "LOCAL_WORLD_SIZE=" + std::to_string(apart ? 1 : ranks),
           "IMBREX_ADDRESS=" + address_of_servers, "IMBREX_JOB=" + job,
           "NCCL_HOSTID=server " + (shares ? number : "0"), kProgram, "--rank", body, kind,
           std::to_string(patience)},
          300);
      result = {process.exit_code, process.output,
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
      EXPECT_FALSE(process.timed_out) << "rank " << rank << " hangs: " << process.output;
      std::ofstream(end_note(job, rank)) << "ended";
    });
  for (std::thread& thread : threads) thread.join();
  for (int rank = from; rank < to; ++rank) std::filesystem::remove(end_note(job, rank));
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
                                               HasSubstr("rank_bodies.cpp"))));
  EXPECT_EQ(first, second);
}

TEST(Processes, ForeignPtxIsLaunched) { EXPECT_THAT(outputs(run("foreign PTX", 2)), Each("right\n")); }

TEST(Processes, TextsAreGathered) { EXPECT_THAT(outputs(run("texts", 3)), Each("from 0, from 1, from 2, ")); }

TEST(Processes, ARankThatDiesIsNamedOnTheOthersAtOnce) {
  const std::vector<Rank> ranks = run("dies", 3, "virtual", kPatient);
  EXPECT_EQ(ranks[1].exit_code, 128 + SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(ranks[static_cast<size_t>(rank)].output,
                AllOf(HasSubstr("rank 1 is gone: its process ("), HasSubstr("has ended without a word")));
    EXPECT_LT(ranks[static_cast<size_t>(rank)].seconds, kAtOnce);
  }
}

TEST(Processes, TheOthersGetToKnowThatRank0HasDied) {
  const std::vector<Rank> ranks = run("rank 0 dies", 3, "virtual", kPatient);
  for (const int rank : {1, 2}) {
    EXPECT_THAT(ranks[static_cast<size_t>(rank)].output, HasSubstr("rank 0 is gone"));
    EXPECT_LT(ranks[static_cast<size_t>(rank)].seconds, kAtOnce);
  }
}

TEST(Processes, TheOthersGetToKnowThatRank0IsStoppedWhileItRunsTheirKernels) {
  const std::vector<Rank> ranks = run("rank 0 stops", 3, "virtual", 2);
  for (const int rank : {1, 2}) {
    EXPECT_THAT(ranks[static_cast<size_t>(rank)].output,
                AllOf(HasSubstr("rank 0 is gone"), HasSubstr("its process has said nothing for 12 s")));
    EXPECT_LT(ranks[static_cast<size_t>(rank)].seconds, kAtOnce);
  }
}

TEST(Processes, TheOthersGetToKnowThatRank0IsStoppedWhileTheyJoin) {
  const std::vector<Rank> ranks = run("rank 0 stops when it has joined", 3, "virtual", 4);
  for (const int rank : {1, 2})
    EXPECT_THAT(ranks[static_cast<size_t>(rank)].output,
                AllOf(HasSubstr("rank 0 is gone"), HasSubstr("its process has said nothing for 14 s")));
}

TEST(Processes, NobodyStaysForARankThatIsStopped) {
  const std::vector<Rank> ranks = run("rank 1 stops", 3, "virtual", 4);
  for (const int rank : {0, 2})
    EXPECT_THAT(ranks[static_cast<size_t>(rank)].output, HasSubstr("rank 1 has not come within 4 s"));
  EXPECT_THAT(ranks[1].output, HasSubstr("rank 0 is gone"));  // once it goes on
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
                         HasSubstr("rank_bodies.cpp"))));
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

TEST(Processes, ARankThatEndsBeforeAllHaveComeIsNamedAtOnce) {
  // One that has connected, and one that has not, as a launcher knows.
  const std::vector<Rank> connected = run("ends while it joins", 3, "virtual", kPatient, 0, 2);
  EXPECT_THAT(connected[0].output, AllOf(HasSubstr("rank 1 is gone: its process ("),
                                         HasSubstr("has ended without a word, before all ranks had come")));
  EXPECT_LT(connected[0].seconds, kAtOnce);
  const std::string file = ::testing::TempDir() + "/ended ranks " + std::to_string(getpid());
  std::ofstream(file) << "rank 2 was killed by signal 9 (Killed)\n";
  setenv("IMBREX_ENDED_RANKS", file.c_str(), 1);
  const std::vector<Rank> with_host = run("nothing", 3, "virtual", kPatient, 0, 2),
                          without = run("nothing", 3, "virtual", kPatient, 1, 2);
  unsetenv("IMBREX_ENDED_RANKS");
  std::filesystem::remove(file);
  for (const Rank& rank : {with_host[0], with_host[1], without[0]}) {
    EXPECT_THAT(rank.output, HasSubstr("rank 2 was killed by signal 9 (Killed), before all ranks had come"));
    EXPECT_LT(rank.seconds, kAtOnce);
  }
}

TEST(Processes, AKernelThatWaitsForARankThatEndedIsFound) {
  EXPECT_THAT(run("waits for one that ended", 2)[0].output,
              AllOf(HasSubstr("endless-run"), HasSubstr("signal::wait"), HasSubstr("rank 0")));
  EXPECT_THAT(
      run("waits for words of one that ended", 2)[0].output,
      AllOf(HasSubstr("endless-run"), HasSubstr("having last looked at"), HasSubstr("rank 1 has ended")));
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

/// Two also where they share one.
std::vector<int> gpu_counts_or_two() {
  const std::vector<int> counts = gpu_counts();
  return counts.empty() ? std::vector<int>{2} : counts;
}

TEST(ProcessesOnTwoGpus, AllReduceAddsUp) {
  if (lacks_two_gpus()) IMBREX_SKIP(two_gpus);
  for (const int ranks : gpu_counts_or_two())
    EXPECT_THAT(outputs(run("all-reduces", ranks, "cuda")), Each("right\n"));
}

TEST(ProcessesOnTwoGpus, ProductsFusedWithCollectivesAreRight) {
  if (lacks_two_gpus()) IMBREX_SKIP(two_gpus);
  if (!Device::cuda(0).can_run("sm_90a")) IMBREX_SKIP(hopper);
  for (const int ranks : gpu_counts_or_two())
    EXPECT_THAT(outputs(run("products", ranks, "cuda")), Each("right\n"));
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
  for (const char* const body : {"dies while a kernel waits", "dies while a copy waits"}) {
    const std::vector<Rank> ranks = run(body, 2, "cuda", 30);
    EXPECT_THAT(ranks[0].output, AllOf(HasSubstr("rank 0: the waits of its kernels were ended"),
                                       HasSubstr("rank 1 is gone: its process")));
    EXPECT_LT(ranks[0].seconds, 25);
  }
}

TEST(Processes, WithoutPeersTheHostProgramsCarryWhatCollectivesNeed) {
  setenv("IMBREX_NO_PEERS", "1", 1);
  for (const char* body : {"rows", "products"}) EXPECT_THAT(outputs(run(body, 3)), Each("right\n")) << body;
  EXPECT_THAT(outputs(run("race", 2)), Each(HasSubstr("kernels cannot reach the memory of other ranks")));
  EXPECT_THAT(outputs(run("all-reduces", 2)), Each(HasSubstr("capture")));
  unsetenv("IMBREX_NO_PEERS");
}

/// A port that nobody uses now.
int free_port() {
  const runtime::FileDescriptor any(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(any.number(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(any.number(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.sin_port);
}

/// Each rank on a server of its own, as far as it knows: they meet over TCP.
class ProcessesOnSeveralServers : public ::testing::Test {
 protected:
  void SetUp() override { address_of_servers = "127.0.0.1:" + std::to_string(free_port()); }
  void TearDown() override { address_of_servers.clear(); }
};

TEST_F(ProcessesOnSeveralServers, MeetOnVirtualGpus) {
  EXPECT_THAT(outputs(run("rows", 3)), Each("right\n"));
  EXPECT_THAT(outputs(run("texts", 2)), Each("from 0, from 1, "));
}

TEST_F(ProcessesOnSeveralServers, ARankThatDiesIsNamed) {
  EXPECT_THAT(run("dies", 3)[0].output, HasSubstr("rank 1 is gone: its process ("));
}

TEST_F(ProcessesOnSeveralServers, OneThatIsNotStartedIsNamed) {
  EXPECT_THAT(run("nothing", 2, "virtual", 3, 0, 1)[0].output, HasSubstr("rank 1 of 2 ranks has not come"));
  EXPECT_THAT(run("nothing", 2, "virtual", 3, 1, 2)[0].output,
              AllOf(HasSubstr("rank 0 has not come within 3 s"), HasSubstr("rank 0 listens at 127.0.0.1:")));
}

TEST_F(ProcessesOnSeveralServers, ThatRank0HasLeftBeforeItSawThemSayWhichRankHasEnded) {
  const auto output_of_rank1 = [] {
    runtime::Listener rank0("tcp:" + address_of_servers);
    std::thread leaves([&] { rank0.accept(runtime::Deadline::clock::now() + std::chrono::seconds(200)); });
    const std::string output = run("nothing", 3, "virtual", kPatient, 1, 2)[0].output;
    leaves.join();
    return output;
  };
  EXPECT_THAT(output_of_rank1(), HasSubstr("rank 1: rank 0 has ended before all ranks had come"));
  const std::string file = ::testing::TempDir() + "/ended ranks of servers " + std::to_string(getpid());
  std::ofstream(file) << "rank 2 was killed by signal 9 (Killed)\n";
  setenv("IMBREX_ENDED_RANKS", file.c_str(), 1);
  EXPECT_THAT(output_of_rank1(),
              HasSubstr("rank 2 was killed by signal 9 (Killed), before all ranks had come"));
  unsetenv("IMBREX_ENDED_RANKS");
  std::filesystem::remove(file);
}

TEST_F(ProcessesOnSeveralServers, OfAnAddressThatIsNoneAreRefused) {
  address_of_servers = "no.such.server.invalid:1";
  EXPECT_THAT(run("nothing", 2, "virtual", 3, 0, 1)[0].output, HasSubstr("no.such.server.invalid"));
}

TEST_F(ProcessesOnSeveralServers, GoThroughNcclOnGpus) {
  if (Ranks::cuda_devices() == 0) IMBREX_SKIP(gpu);
  setenv("IMBREX_RANKS_SHARE_GPU", "1", 1);
  const std::vector<std::string> sums = outputs(run("all-reduces", 2, "cuda")),
                                 products = outputs(run("products", 2, "cuda"));
  unsetenv("IMBREX_RANKS_SHARE_GPU");
  if (sums[0].find("there is no NCCL to use instead") != std::string::npos) IMBREX_SKIP(nccl);
  EXPECT_THAT(sums, Each(HasSubstr("right\n")));
  EXPECT_THAT(products, Each(HasSubstr("right\n")));
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
  EXPECT_EQ(torchrun.address, "10.0.0.1:29501") << "29500 is torchrun's own";

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

TEST(Job, OnSeveralServersNeedsTheAddressOfRank0) {
  setenv("RANK", "0", 1), setenv("WORLD_SIZE", "4", 1), setenv("LOCAL_RANK", "0", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  EXPECT_THAT(error_of([] { Communicator::join(Ranks::from_environment("virtual", options())); }),
              AllOf(HasSubstr("4 ranks, of which 2 are on this server"), HasSubstr("IMBREX_ADDRESS")));
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
