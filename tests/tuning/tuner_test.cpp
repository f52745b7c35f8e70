// SPDX-License-Identifier: Apache-2.0
// The tuner on the virtual GPU, with candidates that do everything a candidate must not. The test program is
// also the worker.
#include "imbrex/runtime/tuner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "../skip.h"
#include "imbrex/lang.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime/cache.h"
#include "imbrex/runtime/machine_code.h"
#include "imbrex/vgpu/timeline.h"
#include "imbrex/vgpu/timeline_assembler.h"
#include "runtime/cache/tuned.h"

namespace imbrex {
namespace {

using testing::HasSubstr;
using Status = Candidate::Status;

bool is_worker = false;
std::atomic<int> traces = 0;  // of the kernel in this process, by any thread
int revision = 0;             // of the kernel's text, for those who look at it in this process

enum Mode : int { kRight, kWrong, kHangs, kDies, kTooLarge, kOutOfBounds };

/// y = 2 x, or not.
struct Twice {
  int mode = kRight;
  int block = 128;

  static auto space() {
    return Space<Twice>().choose<&Twice::mode, &Twice::block>({{kRight, 128},
                                                               {kWrong, 128},
                                                               {kHangs, 128},
                                                               {kRight, 512},
                                                               {kDies, 128},
                                                               {kTooLarge, 128},
                                                               {kOutOfBounds, 128},
                                                               {kRight, 256}});
  }

  void operator()(Int32 n, Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    ++traces;
    if (mode == kDies && is_worker) raise(SIGKILL);
    grid(cdiv(n, block));
    warps(mode == kTooLarge ? 33 : 4);
    Int32 offset = block * block_idx.x;
    auto g_x = global_view(x_ptr, {n});
    auto g_y = global_view(y_ptr, {mode == kOutOfBounds ? n + 100000 : n});
    auto y =
        load_global(g_x, {offset}, {block}) * (mode == kWrong ? 2.01f : 2.0f + static_cast<float>(revision));
    if (mode == kHangs)
      for (Loop loop : forever()) {
        store_global(g_y, y, {offset});
        loop.break_if(n < 3000);
      }
    store_global(g_y, y, {mode == kOutOfBounds ? offset + 90000 : offset});
  }
};

const KernelRegistration<Twice> registration{
    {"twice", "y = 2 x", {{"n", 1000, "elements"}}}, [](Case& c, Kernel<Twice>& kernel) {
      const int64_t n = c.size("n");
      DeviceTensor x = c.input(float32, {n}), y = c.output(float32, {n});
      c.launch(kernel, n, x, y);
      c.expect(y, [&](std::span<double> out) {
        const std::vector<double> in = c.values(x);
        for (int64_t i = 0; i < n; ++i) out[i] = 2 * in[i];
      });
    }};

/// "virtual", or what IMBREX_TEST_DEVICE says: cuda runs the same candidates on a GPU.
std::string device_kind() {
  const char* asked = std::getenv("IMBREX_TEST_DEVICE");
  return asked == nullptr ? "virtual" : asked;
}

TuneOptions quick() {
  TuneOptions options;
  options.device = device_kind();
  options.timeout_s = device_kind() == "virtual" ? 0.05 : 1;  // a second on the virtual GPU too
  return options;
}

const Candidate& of(const TuneResult& result, const std::string& text) {
  for (const Candidate& candidate : result.candidates)
    if (candidate.text == text) return candidate;
  throw std::runtime_error("no candidate " + text);
}

class Tuner : public testing::Test {
 protected:
  void SetUp() override { Cache::shared().clear(); }
  const RegisteredKernel& kernel = registered_kernel("twice");
};

TEST_F(Tuner, BadCandidatesAreReportedAndNeverWin) {
  const TuneResult result = tune(kernel, {{"n", 3000}}, quick());
  ASSERT_EQ(result.candidates.size(), 8u);
  EXPECT_EQ(result.is_modelled, device_kind() == "virtual");
  EXPECT_EQ(of(result, "mode=1 block=128").status, Status::kWrong);
  EXPECT_THAT(of(result, "mode=1 block=128").reason, HasSubstr("expected"));
  EXPECT_EQ(of(result, "mode=2 block=128").status, Status::kHung);
  EXPECT_THAT(of(result, "mode=2 block=128").reason, HasSubstr("still launching after 1 s"));
  EXPECT_EQ(of(result, "mode=3 block=128").status, Status::kTrapped);
  EXPECT_THAT(of(result, "mode=3 block=128").reason, HasSubstr("signal 9"));
  EXPECT_EQ(of(result, "mode=4 block=128").status, Status::kRejected);
  EXPECT_THAT(of(result, "mode=4 block=128").reason, HasSubstr("tuner_test.cpp"));
  EXPECT_THAT(of(result, "mode=4 block=128").reason, HasSubstr("warps"));
  EXPECT_EQ(of(result, "mode=5 block=128").status, Status::kFailed) << "the launch is refused";
  EXPECT_THAT(of(result, "mode=5 block=128").reason, HasSubstr("too small"));
  ASSERT_NE(result.winner(), nullptr);
  EXPECT_EQ(result.winner()->status, Status::kBest);
  EXPECT_THAT(result.winner()->text, testing::StartsWith("mode=0"));
  for (const Candidate& candidate : result.candidates) {
    if (candidate.is_right()) {
      // On a GPU what was dropped early was measured in another moment than the winner.
      if (result.is_modelled) {
        EXPECT_LE(result.winner()->microseconds, candidate.microseconds);
      }
      EXPECT_GT(candidate.microseconds, 0);
    }
  }
}

/// On the virtual GPU workers that predict at once, on CUDA GPUs as many as there are.
TEST_F(Tuner, SeveralWorkersFindWhatOneFinds) {
  const TuneResult alone = tune(kernel, {{"n", 3000}}, quick());
  TuneOptions options = quick();
  options.gpus = device_kind() == "virtual" ? 3 : 0;
  options.again = true;
  std::vector<size_t> steps;
  options.progress = [&](const std::string& phase, size_t done, size_t) {
    if (phase == "first round") steps.push_back(done);
  };
  const TuneResult together = tune(kernel, {{"n", 3000}}, options);
  ASSERT_EQ(together.candidates.size(), alone.candidates.size());
  for (const Candidate& candidate : alone.candidates) {
    if (candidate.is_right())
      EXPECT_TRUE(of(together, candidate.text).is_right()) << candidate.text;
    else
      EXPECT_EQ(of(together, candidate.text).status, candidate.status) << candidate.text;
    if (alone.is_modelled) {
      EXPECT_EQ(of(together, candidate.text).microseconds, candidate.microseconds) << candidate.text;
    }
  }
  ASSERT_NE(together.winner(), nullptr);
  if (alone.is_modelled) {
    EXPECT_EQ(together.winner()->text, alone.winner()->text);
  }
  EXPECT_TRUE(std::ranges::is_sorted(steps)) << "progress goes forward, whoever makes it";
}

TEST_F(Tuner, MoreGpusThanThereAreAreRefused) {
  TuneOptions options = quick();
  options.device = "cuda";
  options.gpus = 1000;
  if (parallel::Ranks::cuda_devices() == 0) IMBREX_SKIP(gpu);
  try {
    tune(kernel, {{"n", 2900}}, options);
    ADD_FAILURE();
  } catch (const LaunchError& error) {
    EXPECT_THAT(error.what(), HasSubstr("tuning on 1000 GPUs"));
  }
}

TEST_F(Tuner, TheResultIsFoundAgainForItsShapeAndForNearOnes) {
  const Device device = Device::open(device_kind(), kernel.target);
  std::string why_not;
  EXPECT_FALSE(find_tuned(kernel, {{"n", 3000}}, device, &why_not));
  EXPECT_THAT(why_not, HasSubstr("was not tuned on "));
  const TuneResult first = tune(kernel, {{"n", 3000}}, quick());
  TuneOptions without_worker = quick();
  without_worker.worker = {"/no/such/worker"};  // nothing is measured again
  const TuneResult again = tune(kernel, {{"n", 3000}}, without_worker);
  EXPECT_TRUE(again.is_remembered);
  ASSERT_NE(again.winner(), nullptr);
  EXPECT_EQ(again.winner()->text, first.winner()->text);

  const auto same = find_tuned(kernel, {{"n", 3000}}, device);
  ASSERT_TRUE(same);
  EXPECT_TRUE(same->is_exact);
  EXPECT_EQ(same->text, first.winner()->text);
  const auto near = find_tuned(kernel, {{"n", 5000}}, device);
  ASSERT_TRUE(near);
  EXPECT_FALSE(near->is_exact);
  EXPECT_EQ(near->shape, std::vector<int64_t>{3000});

  revision = 1;  // the kernel's text changes
  EXPECT_FALSE(find_tuned(kernel, {{"n", 3000}}, device, &why_not));
  EXPECT_THAT(why_not, HasSubstr("changed"));
  EXPECT_THAT(explain_cache(kernel, {{"n", 3000}}, kernel.space.configuration(0)), HasSubstr("code: wanted"));
  revision = 0;
  EXPECT_THAT(explain_cache(kernel, {{"n", 3001}}, kernel.space.configuration(0)),
              HasSubstr("shape: wanted '3001', kept '3000'"));
}

TEST_F(Tuner, TunedKernelsTakeTheConfigurationOfTheNearestShape) {
  const Device device = Device::open("virtual", kernel.target);  // which counts CTAs
  auto record = [&](int64_t n, const std::string& config) {
    Case c(Case::Mode::kTrace, std::nullopt, {{"n", n}}, 0);
    kernel.run(c, std::nullopt, kernel.space.configuration(0));
    const std::string code = runtime::code_digest(*c.function);
    runtime::store_tuned(Cache::shared(),
                         runtime::tuned_key(std::string(kernel.entry->type_name), kernel.target,
                                            runtime::tuned_on(device), c.shape, code),
                         {c.shape, {{"n", n}}, code, config, 1.0, true});
  };
  record(1000, "mode=0 block=256");
  record(16000, "mode=0 block=512");
  record(8000, "mode=4 block=128");  // cannot be compiled: the next nearest counts
  Kernel<Twice> tuned = Kernel<Twice>::tuned(device);
  auto ctas = [&](int64_t n) {
    DeviceTensor x = DeviceTensor::random(device, float32, {n}, 1),
                 y = DeviceTensor::empty(device, float32, {n});
    const LaunchReport report = tuned(n, x, y);
    report.expect_clean();
    EXPECT_EQ(y.to_host().get(n - 1), 2 * x.to_host().get(n - 1));
    return report.virtual_report.statistics.ctas;
  };
  EXPECT_EQ(ctas(1000), 4);    // of 256
  EXPECT_EQ(ctas(1500), 6);    // the nearest is 1000
  EXPECT_EQ(ctas(16000), 32);  // of 512
  EXPECT_EQ(ctas(7000), 14);   // 8000 would be nearest
  EXPECT_EQ(ctas(1000), 4);
  Cache::shared().clear();
  Kernel<Twice> plain = Kernel<Twice>::tuned(device);
  DeviceTensor x = DeviceTensor::random(device, float32, {1000}, 1),
               y = DeviceTensor::empty(device, float32, {1000});
  EXPECT_EQ(plain(1000, x, y).virtual_report.statistics.ctas, 8) << "nothing tuned: the default, 128";
}

TEST_F(Tuner, ResultsThatNameOtherMembersAreStale) {
  const Device device = Device::open(device_kind(), kernel.target);
  Case c(Case::Mode::kTrace, std::nullopt, {{"n", 3000}}, 0);
  kernel.run(c, std::nullopt, kernel.space.configuration(0));
  const std::string code = runtime::code_digest(*c.function);
  runtime::store_tuned(
      Cache::shared(),
      runtime::tuned_key(std::string(kernel.entry->type_name), kernel.target, runtime::tuned_on(device),
                         c.shape, code),
      {c.shape, {{"n", 3000}}, code, "mode=0 tile=256", 1.0, true});  // block was called tile
  std::string why_not;
  EXPECT_FALSE(find_tuned(kernel, {{"n", 3000}}, device, &why_not));
  EXPECT_THAT(why_not, HasSubstr("changed"));
  EXPECT_FALSE(tune(kernel, {{"n", 3000}}, quick()).is_remembered);
  EXPECT_TRUE(find_tuned(kernel, {{"n", 3000}}, device));
}

TEST_F(Tuner, InterruptedItGoesOnWhereItStopped) {
  std::atomic<bool> stop = false;
  TuneOptions options = quick();
  options.jobs = 1;
  options.stop = &stop;
  options.progress = [&](const std::string&, size_t done, size_t) { stop = done >= 2; };
  const TuneResult first = tune(kernel, {{"n", 2000}}, options);
  EXPECT_TRUE(first.is_interrupted);
  EXPECT_EQ(of(first, "mode=0 block=256").status, Status::kWaiting);
  EXPECT_EQ(of(first, "mode=0 block=128").status, Status::kDropped) << "measured";
  const TuneResult second = tune(kernel, {{"n", 2000}}, quick());
  EXPECT_FALSE(second.is_interrupted);
  EXPECT_TRUE(of(second, "mode=0 block=128").is_remembered);
  EXPECT_FALSE(of(second, "mode=0 block=256").is_remembered);
  ASSERT_NE(second.winner(), nullptr);
  EXPECT_EQ(second.winner()->status, Status::kBest);
  TuneOptions again = quick();
  again.again = true;
  EXPECT_FALSE(of(tune(kernel, {{"n", 2000}}, again), "mode=0 block=128").is_remembered);
}

/// This program again, as `tuner_test tune N PAUSE`: it tunes for N elements, and after PAUSE candidates says
/// so on its standard output and waits to be killed. A process of its own, since a child of fork() alone
/// cannot use a CUDA driver that its parent began to use.
class TuningProcess {
 public:
  explicit TuningProcess(int64_t n, size_t pause_after = 1000, rlim_t file_bytes = RLIM_INFINITY) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      close(ends[1]);
      const rlimit limit{file_bytes, file_bytes};
      setrlimit(RLIMIT_FSIZE, &limit);
      ::signal(SIGXFSZ, SIG_IGN);  // writing fails with EFBIG, as on a full disk with ENOSPC
      execl("/proc/self/exe", "tuner_test", "tune", std::to_string(n).c_str(),
            std::to_string(pause_after).c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    output_ = ends[0];
  }
  ~TuningProcess() { close(output_); }
  void await_pause() const {
    char byte;
    EXPECT_EQ(read(output_, &byte, 1), 1) << "it ended before";
  }
  void kill() const { ::kill(pid_, SIGKILL); }
  /// The exit code; -1 when a signal ended it.
  int wait() const {
    int status = -1;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
  int output_ = -1;
};

/// Below 3000 elements kHangs ends, with the right result.
bool has_right_winner(const TuneResult& result) {
  return result.winner() != nullptr &&
         (result.winner()->text.starts_with("mode=0") || result.winner()->text.starts_with("mode=2"));
}

int tuning_process_main(int64_t n, size_t pause_after) {
  TuneOptions options = quick();
  options.jobs = 1;
  options.progress = [&](const std::string&, size_t done, size_t) {
    if (done >= pause_after && write(STDOUT_FILENO, "x", 1) == 1) pause();
  };
  return has_right_winner(tune(registered_kernel("twice"), {{"n", n}}, options)) ? 0 : 1;
}

TEST_F(Tuner, KilledItLosesNothing) {
  const TuningProcess first(2500, 2);
  first.await_pause();
  first.kill();
  EXPECT_EQ(first.wait(), -1);
  const TuneResult result = tune(kernel, {{"n", 2500}}, quick());
  EXPECT_TRUE(of(result, "mode=0 block=128").is_remembered);
  EXPECT_TRUE(of(result, "mode=1 block=128").is_remembered);
  EXPECT_EQ(of(result, "mode=1 block=128").status, Status::kWrong);
  EXPECT_TRUE(has_right_winner(result));
}

TEST_F(Tuner, TwoProcessesTuneOneKeyAndAgree) {
  const TuningProcess first(2700), second(2700);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  const TuneResult result = tune(kernel, {{"n", 2700}}, quick());
  EXPECT_TRUE(result.is_remembered);
  EXPECT_TRUE(has_right_winner(result));
}

TEST_F(Tuner, AFullDiskCostsOnlyWhatIsKept) {
  if (device_kind() != "virtual") GTEST_SKIP() << "ptxas needs a file for its result";
  EXPECT_EQ(TuningProcess(2600, 1000, 64).wait(), 0);
  EXPECT_FALSE(tune(kernel, {{"n", 2600}}, quick()).is_remembered) << "64 bytes are not an entry";
}

TEST_F(Tuner, DamagedEntriesAreMeasuredAnew) {
  const TuneResult first = tune(kernel, {{"n", 2650}}, quick());
  EXPECT_TRUE(tune(kernel, {{"n", 2650}}, quick()).is_remembered);
  size_t damaged = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Cache::shared().directory())) {
    if (!entry.is_regular_file() || entry.file_size() == 0) continue;
    if (++damaged % 2 == 0) {
      std::filesystem::resize_file(entry.path(), entry.file_size() * 2 / 3);
    } else {
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(entry.file_size() / 2));
      const char byte = static_cast<char>(file.peek() ^ 4);
      file.seekp(static_cast<std::streamoff>(entry.file_size() / 2));
      file.put(byte);
    }
  }
  EXPECT_GE(damaged, 7u);  // of every candidate that got so far, and of the winner
  const TuneResult again = tune(kernel, {{"n", 2650}}, quick());
  EXPECT_FALSE(again.is_remembered);
  for (const Candidate& candidate : again.candidates) EXPECT_FALSE(candidate.is_remembered) << candidate.text;
  EXPECT_TRUE(has_right_winner(again));
  EXPECT_EQ(again.candidates.size(), first.candidates.size());
}

TEST_F(Tuner, RunsThatShareTheirDataCompileAKernelOnce) {
  const Device device = Device::open("virtual", kernel.target);
  const auto data = std::make_shared<CaseData>();
  auto traces_of_run = [&](const std::string& configuration) {
    const int before = traces;
    Case c(Case::Mode::kRun, device, {{"n", 700}}, 1);
    c.share(data);
    kernel.run(c, device, kernel.space.parse(configuration));
    EXPECT_EQ(c.verified(), configuration.starts_with("mode=0")) << configuration;
    return traces - before;
  };
  EXPECT_GE(traces_of_run("mode=0 block=128"), 1);
  EXPECT_EQ(traces_of_run("mode=0 block=128"), 0);
  EXPECT_GE(traces_of_run("mode=1 block=128"), 1) << "another configuration, another kernel";
  EXPECT_EQ(traces_of_run("mode=0 block=128"), 0);
}

TEST_F(Tuner, OnTheVirtualGpuTheTimelinePredicts) {
  const TuneResult result = tune(kernel, {{"n", 2550}}, [] {
    TuneOptions options = quick();
    options.device = "virtual";
    options.timeout_s = 0.05;
    return options;
  }());
  // The best few, which are all, by machine code where there is a ptxas.
  predict_from_machine_code();
  vgpu::Options machine;
  machine.timeline.record = true;
  const Device device = Device::open("virtual", kernel.target, machine);
  for (int block : {128, 256, 512}) {
    Twice instance;
    instance.block = block;
    Kernel<Twice> twice(instance, device);
    DeviceTensor x = DeviceTensor::random(device, float32, {2550}, 1),
                 y = DeviceTensor::empty(device, float32, {2550});
    const LaunchReport report = twice(2550, x, y);
    ASSERT_NE(report.virtual_report.timeline, nullptr);
    EXPECT_DOUBLE_EQ(of(result, fmt::format("mode=0 block={}", block)).microseconds,
                     report.virtual_report.timeline->microseconds());
  }
  vgpu::set_timeline_assembler(nullptr);
}

TEST_F(Tuner, AWorkerThatCannotStartIsSaid) {
  TuneOptions options = quick();
  options.worker = {"/no/such/worker"};
  try {
    tune(kernel, {{"n", 2800}}, options);
    ADD_FAILURE();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("exit code 127"));
  }
}

TEST(TunedRecords, NearestByRatiosAndOnlyWhereOtherConstantsAreEqual) {
  const ParameterInfo parameters[] = {{ParameterKind::kScalar, int32},
                                      {ParameterKind::kConstant, int64},
                                      {ParameterKind::kConstant, any_type},
                                      {ParameterKind::kScalar, float32},
                                      {ParameterKind::kPointer, float16}};
  std::vector<runtime::TunedRecord> records;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{1024, 1024, 7}, {4096, 4096, 7}, {1000, 1000, 8}, {2048, 64, 7}, {5, 5}})
    records.push_back({shape, {}, "", "", 1, false});
  const std::vector<int64_t> wanted = {3000, 2000, 7};
  const auto sorted = runtime::by_distance(records, wanted, parameters);
  ASSERT_EQ(sorted.size(), 3u);
  EXPECT_EQ(sorted[0].shape[0], 4096);  // log2: 0.45 + 1.03; 1024: 1.55 + 0.97
  EXPECT_EQ(sorted[1].shape[0], 1024);
  EXPECT_EQ(sorted[2].shape[0], 2048);
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "worker") == 0) {
    imbrex::is_worker = true;
    return imbrex::tune_worker_main();
  }
  if (argc == 4 && std::strcmp(argv[1], "tune") == 0)
    return imbrex::tuning_process_main(std::atoll(argv[2]), static_cast<size_t>(std::atoll(argv[3])));
  char folder[] = "/tmp/imbrex-tuner-test-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 2;
  setenv("IMBREX_CACHE_DIR", folder, 1);
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder);
  return result;
}
