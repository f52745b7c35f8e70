// SPDX-License-Identifier: Apache-2.0
// Kernels of a few instructions that bend a rule of the memory model, judged by the letter and in practice.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "imbrex/vgpu/bent_rule.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {

struct Bent {
  std::string body;
  std::string target = "sm_90a";
  std::string variables = "";
  Dim3 grid = {}, block = {32}, cluster = {};
  int64_t out_bytes = 1024;
  uint64_t seed = 0;
  bool explicit_cluster = false;

  Report run(Strictness strictness) const {
    const std::string text = fmt::format(R"(.version 9.0
.target {}
.address_size 64
.file 1 "bent.cu"
.visible .entry k(.param .u64 buffer)
{{
  .reg .pred %p, %q, %first;
  .reg .b32 %t, %c, %x, %y, %z, %s, %at, %bar;
  .reg .b64 %out, %own, %v, %w, %u;
  .shared .align 128 .b8 tile[512];
  .shared .align 8 .b64 barrier;
{}
  ld.param.u64 %out, [buffer];
  mov.u32 %t, %tid.x;
  mov.u32 %c, %ctaid.x;
  mov.u32 %s, tile;
  mov.u32 %bar, barrier;
  mad.wide.u32 %own, %t, 4, %out;
  mad.lo.u32 %at, %t, 4, %s;
  setp.eq.u32 %first, %t, 0;
{}
  ret;
}}
)",
                                         target, variables, body);
    VirtualGpu gpu({.target = target, .host_threads = 1, .seed = seed, .strictness = strictness});
    DeviceAddress out = gpu.allocate(out_bytes);
    gpu.fill(out, 0, out_bytes);
    void* arguments[] = {&out};
    const Report report =
        gpu.launch(gpu.load_module(text, "bent.ptx").function("k"), {.grid = grid,
                                                                     .cluster = cluster,
                                                                     .block = block,
                                                                     .explicit_cluster = explicit_cluster,
                                                                     .arguments = arguments});
    result.resize(static_cast<size_t>(out_bytes));
    gpu.copy_from_device(result.data(), out, out_bytes);
    return report;
  }
  uint32_t word(size_t i) const {
    uint32_t value;
    std::memcpy(&value, result.data() + 4 * i, 4);
    return value;
  }

  mutable std::vector<std::byte> result = {};  // of the last run
};

/// By the letter only findings of `kind` that bend `rule`; in practice as many notes, and nothing else.
inline void expect_bends(const Bent& kernel, FindingKind kind, BentRule rule) {
  const Report strict = kernel.run(Strictness::kStrict);
  EXPECT_FALSE(strict.findings.empty()) << "nothing found";
  EXPECT_TRUE(strict.notes.empty());
  for (const Finding& f : strict.findings) {
    EXPECT_EQ(f.kind, kind) << f.format();
    EXPECT_EQ(f.rule, rule) << f.format();
    EXPECT_EQ(f.severity, Severity::kFinding);
  }
  const Report practical = kernel.run(Strictness::kPractical);
  EXPECT_TRUE(practical.clean()) << practical.format();
  EXPECT_EQ(practical.notes.size(), strict.findings.size()) << practical.format();
  for (const Finding& f : practical.notes) {
    EXPECT_EQ(f.kind, kind) << f.format();
    EXPECT_EQ(f.rule, rule) << f.format();
    EXPECT_EQ(f.severity, Severity::kNote);
    EXPECT_NE(f.format().find(std::string(name(rule)) + ": "), std::string::npos) << f.format();
  }
}
/// In practice too.
inline void expect_found(const Bent& kernel, FindingKind kind) {
  for (const Strictness strictness : {Strictness::kStrict, Strictness::kPractical}) {
    const Report report = kernel.run(strictness);
    ASSERT_FALSE(report.findings.empty()) << report.format();
    EXPECT_EQ(report.findings[0].kind, kind) << report.format();
  }
}
inline void expect_clean(const Bent& kernel) {
  for (const Strictness strictness : {Strictness::kStrict, Strictness::kPractical}) {
    const Report report = kernel.run(strictness);
    EXPECT_TRUE(report.clean() && report.notes.empty()) << report.format();
  }
}

}  // namespace imbrex::vgpu
