// SPDX-License-Identifier: Apache-2.0
// Small PTX kernels whose time is predicted.
#pragma once

#include <fmt/format.h>

#include "vgpu_testing.h"

namespace imbrex::vgpu {

inline std::string module_of(const std::string& body) {
  return fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
.shared .align 16 .b8 tile[4096];
.shared .align 8 .b64 bar;
.visible .entry k(.param .u64 p)
{{
  .reg .pred %p, %q;
  .reg .b32 %t, %x, %y, %i, %bar, %tile;
  .reg .b64 %a, %b, %s;
  .reg .f32 %f<8>;
  mov.u32 %t, %tid.x;
  mov.u32 %bar, bar;
  mov.u32 %tile, tile;
  ld.param.u64 %a, [p];
  setp.eq.u32 %q, %t, 0;
{}
  ret;
}}
)",
                     body);
}

struct Asked {
  int64_t ctas = 1, threads = 32;
  uint64_t seed = 0;
  int sms = 0, host_threads = 1;
  int64_t cta = -1;
  bool explain = false, sample = false;
  double clock_ghz = 0;
  bool checks = true;
  std::shared_ptr<const GpuModel> gpu = {};
  TensorMath math = TensorMath::kExact;
};

inline Report launch(const std::string& body, const Asked& asked = {}) {
  Options options{
      .target = "sm_90a", .num_sms = asked.sms, .host_threads = asked.host_threads, .seed = asked.seed};
  options.timeline = {.record = true,
                      .cta = asked.cta,
                      .explain = asked.explain,
                      .sample = asked.sample,
                      .clock_ghz = asked.clock_ghz,
                      .gpu = asked.gpu};
  options.tensor_math = asked.math;
  if (!asked.checks) options.checks = CheckSet::none();
  VirtualGpu gpu(options);
  const Module module = gpu.load_module(module_of(body), "timeline.ptx");
  DeviceAddress memory = to_device(gpu, std::vector<uint32_t>(1 << 20, 1u));
  void* arguments[] = {&memory};
  return gpu.launch(module.function("k"),
                    {.grid = {asked.ctas}, .block = {asked.threads}, .arguments = arguments});
}

inline Timeline predict(const std::string& body, const Asked& asked = {}) {
  const Report report = launch(body, asked);
  EXPECT_TRUE(report.clean()) << report.format();
  EXPECT_NE(report.timeline, nullptr);
  EXPECT_TRUE(report.timeline->complete);
  return *report.timeline;
}

/// Each thread loads its word `count` times over, every address depending on the word before.
inline std::string chase(int count, int step_bytes) {
  std::string body = "  mad.wide.u32 %b, %t, 4, %a;\n";
  for (int i = 0; i < count; ++i)
    body += fmt::format("  ld.global.u32 %x, [%b];\n  mad.wide.u32 %b, %x, {}, %b;\n", step_bytes);
  return body + "  st.global.u32 [%b], %x;\n";
}

}  // namespace imbrex::vgpu
