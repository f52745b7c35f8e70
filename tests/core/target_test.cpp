// SPDX-License-Identifier: Apache-2.0
#include "core/target.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "imbrex/core/error.h"
#include "imbrex/inspect/gpu_model.h"
#include "imbrex/inspect/occupancy.h"

namespace imbrex {
namespace {

TEST(Target, ConsumerChipsHave99KilobytesForACta) {
  for (const char* name : {"sm_86", "sm_89", "sm_120", "sm_120a", "sm_121a"}) {
    const Target* target = find_target(name);
    ASSERT_NE(target, nullptr) << name;
    EXPECT_EQ(target->max_shared_bytes, 99 * 1024) << name;
    EXPECT_EQ(target->max_threads_per_sm, 1536) << name;
    EXPECT_EQ(target->tensor_memory_columns, 0) << name;
  }
  EXPECT_EQ(find_target("sm_87")->max_shared_bytes, 163 * 1024);
  EXPECT_EQ(find_target("sm_103a")->max_shared_bytes, 227 * 1024);
  EXPECT_EQ(find_target("sm_103a")->tensor_memory_columns, 512);
  EXPECT_EQ(find_target("sm_100f")->tensor_memory_columns, 512);
  EXPECT_EQ(find_target("sm_100")->tensor_memory_columns, 0);
  EXPECT_EQ(find_target("sm_90f"), nullptr);
  EXPECT_EQ(find_target("sm_80a"), nullptr);
}

TEST(Target, NamesAreReadBackToTheirParts) {
  for (const std::string& name : target_names()) {
    const std::optional<TargetName> parsed = TargetName::parse(name);
    ASSERT_TRUE(parsed.has_value()) << name;
    EXPECT_EQ(parsed->sm, find_target(name)->sm);
    EXPECT_EQ(parsed->variant, find_target(name)->variant);
  }
  for (const char* name : {"", "sm_", "sm_90b", "sm_90aa", "90a", "sm_-1", "sm_123456789012"})
    EXPECT_FALSE(TargetName::parse(name).has_value()) << name;
}

TEST(Target, InstructionsOfOneGenerationAreItsVariants) {
  const auto has = [](const char* target, const char* since) {
    return target_has(*find_target(target), since);
  };
  EXPECT_TRUE(has("sm_90a", "sm_90a"));
  EXPECT_FALSE(has("sm_90", "sm_90a"));
  EXPECT_FALSE(has("sm_100a", "sm_90a"));
  for (const char* name : {"sm_100a", "sm_100f", "sm_103a", "sm_103f", "sm_110a"})
    EXPECT_TRUE(has(name, "sm_100a"));
  for (const char* name : {"sm_100", "sm_103", "sm_120a", "sm_90a"}) EXPECT_FALSE(has(name, "sm_100a"));
  for (const char* name : {"sm_120a", "sm_120f", "sm_121a"}) EXPECT_TRUE(has(name, "sm_120a"));
  EXPECT_FALSE(has("sm_110a", "sm_120a"));
  EXPECT_TRUE(has("sm_120", "sm_90"));
  EXPECT_FALSE(has("sm_86", "sm_89"));
}

TEST(Target, KernelsAreCompiledAnewForAnotherMemberOfTheFamilyAndForLessMemory) {
  EXPECT_EQ(target_for("sm_80", "sm_90a"), "sm_80");  // as written: everything of it fits
  EXPECT_EQ(target_for("sm_80", "sm_89"), "sm_89");   // 99 KiB instead of 163
  EXPECT_EQ(target_for("sm_80", "sm_120a"), "sm_120a");
  EXPECT_EQ(target_for("sm_86", "sm_120a"), "sm_86");
  EXPECT_EQ(target_for("sm_90a", "sm_90a"), "sm_90a");
  EXPECT_EQ(target_for("sm_100a", "sm_103a"), "sm_103a");
  EXPECT_EQ(target_for("sm_100f", "sm_103a"), "sm_100f");
  EXPECT_EQ(target_for("sm_90a", "sm_100a"), std::nullopt);
  EXPECT_EQ(target_for("sm_103a", "sm_100a"), std::nullopt);
  EXPECT_EQ(target_for("sm_100a", "sm_120a"), std::nullopt);
  EXPECT_EQ(target_for("sm_90", "sm_89"), std::nullopt);
}

TEST(Target, PtxRunsOnItsOwnChipItsFamilyOrEveryLaterOne) {
  EXPECT_TRUE(runs_code_of("sm_103a", "sm_100f"));
  EXPECT_FALSE(runs_code_of("sm_103a", "sm_100a"));
  EXPECT_FALSE(runs_code_of("sm_110a", "sm_100f"));
  EXPECT_TRUE(runs_code_of("sm_120a", "sm_90"));
  EXPECT_FALSE(runs_code_of("sm_120a", "sm_90a"));
  EXPECT_FALSE(runs_code_of("sm_80", "sm_86"));
}

TEST(GpuModels, StandForTheirTargetsAndKeepWithinThem) {
  for (const GpuModel& gpu : gpu_models()) {
    ASSERT_NE(find_target(gpu.target), nullptr) << gpu.name;
    EXPECT_EQ(&gpu_model(gpu.name), &gpu);
    EXPECT_EQ(find_gpu_model_of_device(gpu.title), &gpu);
    EXPECT_GT(gpu.memory_bus_bits, 0) << gpu.name;
    EXPECT_EQ(gpu.peak(float8_e4m3) > 0, target_has(*find_target(gpu.target), "sm_89")) << gpu.name;
  }
  EXPECT_EQ(gpu_model_for("sm_80").name, "a100");
  EXPECT_EQ(gpu_model_for("sm_90").name, "h200");
  EXPECT_EQ(gpu_model_for("sm_100a").name, "b200");
  EXPECT_EQ(gpu_model_for("sm_87").name, "a10");
  EXPECT_EQ(gpu_model_for("sm_121a").name, "rtx5090");
  EXPECT_EQ(find_gpu_model_of_device("NVIDIA GeForce GTX 1080"), nullptr);
  EXPECT_EQ(find_gpu_model_of_device("NVIDIA A100-SXM4-80GB")->name, "a100");
  EXPECT_EQ(find_gpu_model_of_device("NVIDIA L40S")->name, "l40s");
}

TEST(GpuModels, PeaksAreTheQuotedOnes) {  // TFLOP/s or TOP/s, dense, sums in float32
  const auto tera = [](const char* gpu, DataType dtype) { return gpu_model(gpu).peak(dtype) / 1e12; };
  EXPECT_NEAR(tera("rtx3090", float16), 71, 1);
  EXPECT_NEAR(tera("a10", float16), 125, 1);
  EXPECT_NEAR(tera("rtx4090", float16), 165.2, 1);
  EXPECT_NEAR(tera("rtx4090", float8_e4m3), 330.3, 1);
  EXPECT_NEAR(tera("l40s", float8_e4m3), 733, 10);
  EXPECT_NEAR(tera("l4", float16), 121, 1);
  EXPECT_NEAR(tera("rtx5090", float16), 209.5, 1);
  EXPECT_NEAR(tera("rtx5090", DataType{DataType::kFloat4E2M1}), 1676, 5);
  EXPECT_NEAR(tera("rtxpro6000", float16), 503.8, 1);
  EXPECT_NEAR(tera("b300", DataType{DataType::kFloat4E2M1}), 13500, 200);
}

// docs/targets.md has these tables; IMBREX_BLESS=1 writes them anew.
std::string targets_table() {
  std::string text =
      "| target | shared memory of a CTA | of an SM | threads, CTAs of an SM | cluster | tensor memory | "
      "products |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const std::string& name : target_names()) {
    const Target& t = *find_target(name);
    const char* unit = t.matrix_unit == MatrixUnit::kTcgen05 ? "`tcgen05`"
                       : t.matrix_unit == MatrixUnit::kWgmma ? "`wgmma`"
                       : target_has(t, "sm_120a")            ? "`mma`, `mma_scaled`"
                                                             : "`mma`";
    text += fmt::format(
        "| `{}` | {} KiB | {} KiB | {}, {} | {} | {} | {} |\n", t.name, t.max_shared_bytes / 1024,
        t.shared_bytes_per_sm / 1024, t.max_threads_per_sm, t.max_ctas_per_sm,
        t.max_cluster == 1 ? "none" : fmt::format("{}, {} on request", t.max_portable_cluster, t.max_cluster),
        t.tensor_memory_columns == 0 ? "none" : fmt::format("{} columns", t.tensor_memory_columns), unit);
  }
  return text;
}
std::string gpus_table() {
  std::string text =
      "| name | GPU | target | SMs | clock | memory | L2 | float16 | float8 | float4 | predicted times |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n";
  const auto tera = [](double rate) {
    return rate == 0 ? std::string("none") : fmt::format("{:.0f}", rate / 1e12);
  };
  for (const GpuModel& g : gpu_models())
    text += fmt::format(
        "| `{}` | {} | `{}` | {} | {:.2f} GHz | {} GB, {:.0f} GB/s | {} MiB | {} | {} | {} | {} |\n", g.name,
        g.title, g.target, g.sms, g.clock_ghz, g.hbm_bytes / 1'000'000'000, g.hbm_bytes_per_second / 1e9,
        g.l2_bytes >> 20, tera(g.peak(float16)), tera(g.peak(float8_e4m3)), tera(g.peak(float4_e2m1)),
        g.is_measured ? "held against runs" : "scaled");
  return text;
}

TEST(TargetsPage, HasTheTables) {
  const std::string path = IMBREX_SOURCE_DIR "/docs/targets.md";
  std::ifstream file(path);
  std::stringstream read;
  read << file.rdbuf();
  std::string page = read.str();
  for (const auto& [mark, table] : {std::pair{"targets", targets_table()}, std::pair{"gpus", gpus_table()}}) {
    const std::string begin = fmt::format("<!-- {} -->\n", mark),
                      end = fmt::format("<!-- end of {} -->", mark);
    const size_t from = page.find(begin), to = page.find(end);
    ASSERT_NE(from, std::string::npos) << mark;
    ASSERT_NE(to, std::string::npos) << mark;
    const size_t start = from + begin.size();
    if (std::getenv("IMBREX_BLESS") != nullptr)
      page.replace(start, to - start, table);
    else
      EXPECT_EQ(page.substr(start, to - start), table) << "docs/targets.md is stale: IMBREX_BLESS=1";
  }
  if (std::getenv("IMBREX_BLESS") != nullptr) std::ofstream(path) << page;
}

}  // namespace
}  // namespace imbrex
