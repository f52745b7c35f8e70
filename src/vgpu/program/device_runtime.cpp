// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/device_runtime.h"

#include <fmt/format.h>

namespace imbrex::vgpu {

namespace {

struct DeviceFunction {
  std::string_view name;
  const char* text;
};

/// The handle of a grid is its workspace, which %envreg1 and 2 tell in a cooperative launch. Its second word is the
/// barrier, as in the CUDA headers' own grid.sync(): the first CTA adds what turns the top bit over once all have come.
constexpr const char* kHandle = R"(
.func (.param .b64 result) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
  .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %rd;
  mov.b32 %r0, %envreg1;
  mov.b32 %r1, %envreg2;
  mov.b64 %rd, {%r1, %r0};
  ld.param.b32 %r2, [scope];
  setp.ne.s32 %p, %r2, 1;
  @%p mov.b64 %rd, 0;
  st.param.b64 [result], %rd;
  ret;
}
)";

constexpr const char* kSynchronize = R"(
.extern .func __imbrex_not_cooperative;
.func (.param .b32 result) NAME(.param .b64 handle, .param .b32 flags)
{
  .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd;
  ld.param.b64 %rd, [handle];
  setp.eq.u64 %p, %rd, 0;
  @!%p bra COOPERATIVE;
  call.uni __imbrex_not_cooperative;
COOPERATIVE:
  bar.sync 0;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %tid.y;
  or.b32 %r0, %r0, %r1;
  mov.u32 %r1, %tid.z;
  or.b32 %r0, %r0, %r1;
  setp.ne.u32 %p, %r0, 0;
  @%p bra DONE;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ctaid.y;
  or.b32 %r0, %r0, %r1;
  mov.u32 %r1, %ctaid.z;
  or.b32 %r0, %r0, %r1;
  mov.u32 %r1, %nctaid.x;
  mov.u32 %r2, %nctaid.y;
  mul.lo.u32 %r1, %r1, %r2;
  mov.u32 %r2, %nctaid.z;
  mul.lo.u32 %r1, %r1, %r2;
  sub.u32 %r1, 0x80000001, %r1;
  setp.ne.u32 %p, %r0, 0;
  selp.b32 %r1, 1, %r1, %p;
  membar.gl;
  atom.add.u32 %r2, [%rd + 4], %r1;
AGAIN:
  ld.volatile.u32 %r3, [%rd + 4];
  xor.b32 %r3, %r3, %r2;
  setp.ge.s32 %p, %r3, 0;
  @%p bra AGAIN;
  membar.gl;
DONE:
  bar.sync 0;
  st.param.b32 [result], 0;
  ret;
}
)";

constexpr const char* kSize = R"(
.func (.param .b32 result) cudaCGGetSize(.param .b64 threads, .param .b64 grids, .param .b64 handle)
{
  .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %rd<2>;
  mov.u32 %r0, %nctaid.x;
  mov.u32 %r1, %nctaid.y;
  mul.lo.u32 %r0, %r0, %r1;
  mov.u32 %r1, %nctaid.z;
  mul.lo.u32 %r0, %r0, %r1;
  mov.u32 %r1, %ntid.x;
  mul.lo.u32 %r0, %r0, %r1;
  mov.u32 %r1, %ntid.y;
  mul.lo.u32 %r0, %r0, %r1;
  mov.u32 %r1, %ntid.z;
  mul.lo.u32 %r0, %r0, %r1;
  ld.param.b64 %rd0, [threads];
  ld.param.b64 %rd1, [grids];
  setp.ne.u64 %p, %rd0, 0;
  @%p st.u32 [%rd0], %r0;
  setp.ne.u64 %p, %rd1, 0;
  @%p st.u32 [%rd1], 1;
  st.param.b32 [result], 0;
  ret;
}
)";

constexpr const char* kRank = R"(
.func (.param .b32 result) cudaCGGetRank(.param .b64 thread, .param .b64 grid, .param .b64 handle)
{
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<2>;
  mov.u32 %r0, %ctaid.z;
  mov.u32 %r1, %nctaid.y;
  mov.u32 %r2, %ctaid.y;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  mov.u32 %r1, %nctaid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  mov.u32 %r1, %ntid.z;
  mov.u32 %r2, %tid.z;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  mov.u32 %r1, %ntid.y;
  mov.u32 %r2, %tid.y;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r0, %r0, %r1, %r2;
  ld.param.b64 %rd0, [thread];
  ld.param.b64 %rd1, [grid];
  setp.ne.u64 %p, %rd0, 0;
  @%p st.u32 [%rd0], %r0;
  setp.ne.u64 %p, %rd1, 0;
  @%p st.u32 [%rd1], 0;
  st.param.b32 [result], 0;
  ret;
}
)";

/// 2 is cudaErrorMemoryAllocation.
constexpr const char* kMalloc = R"(
.extern .func (.param .b64 pointer) malloc(.param .b64 bytes);
.func (.param .b32 result) NAME(.param .b64 pointer, .param .b64 bytes)
{
  .reg .pred %p; .reg .b32 %r; .reg .b64 %rd<3>;
  ld.param.b64 %rd0, [pointer];
  ld.param.b64 %rd1, [bytes];
  {
    .param .b64 size;
    .param .b64 made;
    st.param.b64 [size], %rd1;
    call.uni (made), malloc, (size);
    ld.param.b64 %rd2, [made];
  }
  st.u64 [%rd0], %rd2;
  setp.eq.u64 %p, %rd2, 0;
  selp.b32 %r, 2, 0, %p;
  st.param.b32 [result], %r;
  ret;
}
)";

constexpr const char* kFree = R"(
.extern .func free(.param .b64 pointer);
.func (.param .b32 result) NAME(.param .b64 pointer)
{
  .reg .b64 %rd;
  ld.param.b64 %rd, [pointer];
  {
    .param .b64 freed;
    st.param.b64 [freed], %rd;
    call.uni free, (freed);
  }
  st.param.b32 [result], 0;
  ret;
}
)";

/// Errors of the few functions here are told by their results alone.
constexpr const char* kNoError = R"(
.func (.param .b32 result) NAME()
{
  st.param.b32 [result], 0;
  ret;
}
)";

constexpr DeviceFunction kFunctions[] = {
    {"cudaCGGetIntrinsicHandle", kHandle},
    {"cudaCGSynchronize", kSynchronize},
    {"cudaCGSynchronizeGrid", kSynchronize},
    {"cudaCGGetSize", kSize},
    {"cudaCGGetRank", kRank},
    {"cudaMalloc", kMalloc},
    {"__cudaCDP2Malloc", kMalloc},
    {"cudaFree", kFree},
    {"__cudaCDP2Free", kFree},
    {"cudaGetLastError", kNoError},
    {"__cudaCDP2GetLastError", kNoError},
    {"cudaPeekAtLastError", kNoError},
    {"__cudaCDP2PeekAtLastError", kNoError},
};

}  // namespace

std::string device_runtime_for(const ptx::Module& module) {
  std::string text;
  for (const ptx::Function& function : module.functions) {
    if (function.has_body) continue;
    for (const DeviceFunction& known : kFunctions) {
      if (known.name != function.name) continue;
      std::string definition = known.text;
      if (const size_t at = definition.find("NAME("); at != std::string::npos)
        definition.replace(at, 4, known.name);
      text += definition;
    }
  }
  return text;
}

bool launches_kernels(std::string_view function) {
  return function.find("LaunchDevice") != std::string_view::npos ||
         function.find("GetParameterBuffer") != std::string_view::npos;
}

}  // namespace imbrex::vgpu
