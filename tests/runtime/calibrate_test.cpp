// SPDX-License-Identifier: Apache-2.0
// Calibrating: the numbers of a GPU are found from nothing but how long it takes, and are read back from their file.
#include "imbrex/runtime/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model_file.h"
#include "imbrex/vgpu/gpu_numbers.h"

namespace imbrex {
namespace {

using testing::HasSubstr;

/// A small H200, so that streams through all its SMs are short.
GpuModel small_gpu() {
  GpuModel gpu = gpu_model("h200");
  gpu.l2_bytes_per_second *= 4.0 / gpu.sms;
  gpu.hbm_bytes_per_second *= 4.0 / gpu.sms;
  gpu.sms = 4;
  return gpu;
}

Device virtual_gpu(const GpuModel& gpu) {
  vgpu::Options options;
  options.target = gpu.target;
  options.num_sms = gpu.sms;
  options.checks = vgpu::CheckSet::none();
  options.timeline = {.record = true, .gpu = std::make_shared<const GpuModel>(gpu)};
  return Device::virtual_gpu(options);
}

double number(const GpuModel& gpu, const std::string& name) {
  for (const vgpu::GpuNumber& each : vgpu::gpu_numbers(gpu))
    if (each.name == name) return each.value;
  ADD_FAILURE() << "no number " << name;
  return 0;
}

TEST(Calibrate, EveryNumberIsInTheDigestThatKeysPredictions) {
  const GpuModel gpu = gpu_model("h200");
  EXPECT_EQ(vgpu::gpu_numbers_digest(gpu), vgpu::gpu_numbers_digest(gpu_model("h200")));
  GpuModel faster = gpu;
  faster.constants["tma_latency"] = 29;
  EXPECT_NE(vgpu::gpu_numbers_digest(gpu), vgpu::gpu_numbers_digest(faster));
  EXPECT_NE(vgpu::gpu_numbers_digest(gpu), vgpu::gpu_numbers_digest(gpu_model("h100")));
  EXPECT_GT(number(gpu, "merge_window"), 0) << "what launches, L2 and memory cost is among them";
}

TEST(Calibrate, AGpuPredictsItself) {
  const GpuModel gpu = small_gpu();
  const Calibration found = calibrate(virtual_gpu(gpu), gpu);
  EXPECT_GE(found.numbers.size(), 10u);
  EXPECT_THAT(found.left_out, testing::IsEmpty());
  for (const CalibratedNumber& n : found.numbers) {
    EXPECT_NEAR(n.off(), 0, 0.002) << n.name;
    EXPECT_NEAR(n.after / n.before, 1, 0.002) << n.name;
  }
}

TEST(Calibrate, FindsTheNumbersOfAnotherGpu) {
  GpuModel other = small_gpu();
  other.shared_latency_cycles += 9;
  other.l2_latency_cycles += 77;
  other.hbm_latency_cycles += 210;
  other.hbm_bytes_per_second *= 0.7;
  other.constants = {{"alu_latency", 6},       {"mufu_issue", 5},        {"barrier_latency", 47},
                     {"mma_sync_latency", 51}, {"mma_sync_flops", 1700}, {"mbarrier_wake", 140},
                     {"tma_latency", 333}};
  const Calibration found = calibrate(virtual_gpu(other), small_gpu());
  // The model lets ld.global.cg hit in L1, so that L2's bandwidth does not show on four SMs.
  EXPECT_THAT(found.left_out, testing::Each(HasSubstr("l2_bytes_per_second")));
  for (const CalibratedNumber& n : found.numbers)
    EXPECT_NEAR(number(found.model, n.name) / number(other, n.name), 1, 0.03) << n.name << ": " << n.what;
}

TEST(Calibrate, AmpereHasFewerNumbers) {
  GpuModel gpu = gpu_model("a100");
  gpu.l2_bytes_per_second *= 4.0 / gpu.sms;
  gpu.hbm_bytes_per_second *= 4.0 / gpu.sms;
  gpu.sms = 4;
  const Calibration found = calibrate(virtual_gpu(gpu), gpu);
  EXPECT_THAT(found.left_out, testing::Contains(HasSubstr("tma_latency: sm_80 has no such instructions")));
  for (const CalibratedNumber& n : found.numbers) EXPECT_NEAR(n.off(), 0, 0.002) << n.name;
}

class ModelFile : public testing::Test {
 protected:
  void SetUp() override {
    gpu.l2_latency_cycles = 301;
    gpu.constants = {{"tma_latency", 222.5}};
    write(model_file_text(gpu, "NVIDIA H200"));
  }
  void TearDown() override { std::filesystem::remove(path); }
  void write(const std::string& text) const { std::ofstream(path) << text; }
  std::string refusal() const {
    try {
      (void)read_model_file(path, gpu_models());
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "";
  }
  GpuModel gpu = gpu_model("h200");
  const std::string path = testing::TempDir() + "imbrex-model-" + std::to_string(getpid()) + ".json";
};

TEST_F(ModelFile, IsReadBack) {
  const GpuModel read = read_model_file(path, gpu_models());
  EXPECT_EQ(read.name, "h200");
  EXPECT_EQ(read.l2_latency_cycles, 301);
  EXPECT_EQ(read.constants.at("tma_latency"), 222.5);
  EXPECT_EQ(read.calibration, path);
  EXPECT_EQ(number(read, "tma_latency"), 222.5);
}

TEST_F(ModelFile, ThatWasChangedIsRefused) {
  std::string text = model_file_text(gpu, "NVIDIA H200");
  text.replace(text.find("301"), 3, "302");
  write(text);
  EXPECT_THAT(refusal(), HasSubstr("it was changed since it was written"));
  write("{\"imbrex_gpu_model\": 2}");
  EXPECT_THAT(refusal(), HasSubstr("it is of version 2, this Imbrex reads 1"));
  write("[1, 2]");
  EXPECT_THAT(refusal(), HasSubstr("it has no \"imbrex_gpu_model\""));
  std::filesystem::remove(path);
  EXPECT_THAT(refusal(), HasSubstr("it cannot be read"));
}

TEST_F(ModelFile, WithANumberThatThereIsNotIsRefusedByPredictions) {
  gpu.constants = {{"tma_speed", 1}};
  write(model_file_text(gpu, "NVIDIA H200"));
  const GpuModel read = read_model_file(path, gpu_models());
  EXPECT_THROW((void)vgpu::gpu_numbers(read), LaunchError);
}

}  // namespace
}  // namespace imbrex
