// SPDX-License-Identifier: Apache-2.0
// Kernels whose threads write a word each, for tests of control flow.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "vgpu_testing.h"

namespace imbrex::vgpu {

/// A kernel `k(out)` with the thread's number in %t and the address of out[%t] in %out.
inline std::string kernel(const std::string& body, const std::string& before = "") {
  return fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
{}
.visible .entry k(.param .u64 out)
{{
  .reg .pred %p, %q, %r;
  .reg .b32 %t, %x, %y, %z, %lane, %cta, %size;
  .reg .b64 %base, %out, %A, %B;
  ld.param.u64 %base, [out];
  mov.u32 %t, %tid.x;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mad.lo.u32 %t, %cta, %size, %t;
  mov.u32 %lane, %laneid;
  mul.wide.u32 %A, %t, 4;
  add.u64 %out, %base, %A;
{}
}}
)",
                     before, body);
}

struct Outcome {
  Report report;
  std::vector<uint32_t> out;
};

inline Outcome run(const std::string& text, int64_t grid, int64_t block, Options options = {},
                   size_t words = 0) {
  options.target = "sm_90a";
  VirtualGpu gpu(options);
  const Function k = gpu.load_module(text, "test.ptx").function("k");
  if (words == 0) words = static_cast<size_t>(grid * block);
  DeviceAddress out = to_device(gpu, std::vector<uint32_t>(words));
  void* arguments[] = {&out};
  Outcome r;
  r.report = gpu.launch(k, {.grid = {grid}, .block = {block}, .arguments = arguments});
  r.out = from_device<uint32_t>(gpu, out, words);
  return r;
}

}  // namespace imbrex::vgpu
