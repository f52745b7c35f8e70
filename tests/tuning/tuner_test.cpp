// SPDX-License-Identifier: Apache-2.0
// The tuner on the virtual GPU, with candidates that do everything a candidate must not. The test is its own
// worker.
#include "imbrex/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "imbrex/cache.h"
#include "imbrex/imbrex.h"
#include "runtime/tuned.h"

namespace imbrex {
namespace {

using testing::HasSubstr;
using Status = Candidate::Status;

bool is_worker = false;
int revision = 0;  // of the kernel's text, for those who look at it in this process

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
  const char* told = std::getenv("IMBREX_TEST_DEVICE");
  return told == nullptr ? "virtual" : told;
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
      EXPECT_LE(result.winner()->microseconds, candidate.microseconds);
      EXPECT_GT(candidate.microseconds, 0);
    }
  }
}

TEST_F(Tuner, TheResultIsFoundAgainForItsShapeAndForNearOnes) {
  const Device device = Device::open(device_kind(), kernel.target);
  std::string why_not;
  EXPECT_FALSE(find_tuned(kernel, {{"n", 3000}}, device, &why_not));
  EXPECT_THAT(why_not, HasSubstr("was not tuned on "));
  const TuneResult first = tune(kernel, {{"n", 3000}}, quick());
  const auto begin = std::chrono::steady_clock::now();
  const TuneResult again = tune(kernel, {{"n", 3000}}, quick());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
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
    runtime::store_tuned(
        Cache::shared(),
        runtime::tuned_key(std::string(kernel.entry->type_name), kernel.target, device.name(), c.shape, code),
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

TEST_F(Tuner, KilledItLosesNothing) {
  // A child of fork() cannot use the CUDA driver that this process began to use.
  if (device_kind() != "virtual") GTEST_SKIP() << "on the virtual GPU only";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    TuneOptions options = quick();
    options.jobs = 1;
    options.progress = [&](const std::string&, size_t done, size_t) {
      if (done >= 2 && write(ends[1], "x", 1) == 1) pause();  // here the parent kills us
    };
    tune(kernel, {{"n", 2500}}, options);
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(ends[0]);
  close(ends[1]);
  const TuneResult result = tune(kernel, {{"n", 2500}}, quick());
  EXPECT_TRUE(of(result, "mode=0 block=128").is_remembered);
  EXPECT_TRUE(of(result, "mode=1 block=128").is_remembered);
  EXPECT_EQ(of(result, "mode=1 block=128").status, Status::kWrong);
  ASSERT_NE(result.winner(), nullptr);
}

TEST_F(Tuner, TwoProcessesTuneOneKeyAndAgree) {
  // A child of fork() cannot use the CUDA driver that this process began to use.
  if (device_kind() != "virtual") GTEST_SKIP() << "on the virtual GPU only";
  std::vector<pid_t> children;
  for (int c = 0; c < 2; ++c) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    const TuneResult result = tune(kernel, {{"n", 2700}}, quick());
    _exit(result.winner() != nullptr && result.winner()->text.starts_with("mode=0") ? 0 : 1);
  }
  for (pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(tune(kernel, {{"n", 2700}}, quick()).is_remembered);
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
  char folder[] = "/tmp/imbrex-tuner-test-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 2;
  setenv("IMBREX_CACHE_DIR", folder, 1);
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder);
  return result;
}
