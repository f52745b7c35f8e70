// SPDX-License-Identifier: Apache-2.0
// Kernels around one instruction: registers in from memory, registers out to memory, shared memory copied in
// and out.
#pragma once

#include <fmt/format.h>

#include "vgpu_testing.h"

namespace imbrex::vgpu {

/// Words of registers: value of register r in thread t at [r * threads + t].
struct RegisterKernel {
  std::string target = "sm_90a";
  int threads = 32;
  int inputs = 0;   // %in0 ..., b32
  int outputs = 0;  // %out0 ..., b32; they start as the inputs of the same number given in `start_outputs`
  bool start_outputs = false;  // outputs are loaded too, after the inputs
  int shared_bytes = 0;        // `tile`, filled from memory before the body and copied back after it
  int shared_align = 1024;
  std::string declarations;
  std::string body;
  TensorMath math = TensorMath::kExact;
  uint64_t seed = 0;

  std::string text() const {
    std::string t = fmt::format(".version 9.0\n.target {}\n.address_size 64\n", target);
    t += fmt::format(
        ".visible .entry k(.param .u64 regs_in, .param .u64 regs_out, .param .u64 tile_in, .param .u64 "
        "tile_out)\n"
        ".reqntid {}\n{{\n  .reg .pred %p<8>;\n  .reg .b32 %r<32>;\n  .reg .b64 %rd<32>;\n  .reg .b32 "
        "%in<{}>;\n"
        "  .reg .b32 %out<{}>;\n",
        threads, inputs + 1, outputs + 1);
    if (shared_bytes > 0) t += fmt::format("  .shared .align {} .b8 tile[{}];\n", shared_align, shared_bytes);
    t += "  .shared .align 8 .b64 barrier;\n" + declarations;
    t +=
        "  ld.param.u64 %rd1, [regs_in];\n  ld.param.u64 %rd2, [regs_out];\n  ld.param.u64 %rd3, [tile_in];\n"
        "  ld.param.u64 %rd4, [tile_out];\n  mov.u32 %r1, %tid.x;\n  mul.wide.u32 %rd5, %r1, 4;\n"
        "  add.u64 %rd1, %rd1, %rd5;\n  add.u64 %rd2, %rd2, %rd5;\n";
    for (int i = 0; i < inputs; ++i)
      t += fmt::format("  ld.global.b32 %in{}, [%rd1+{}];\n", i, i * threads * 4);
    for (int i = 0; start_outputs && i < outputs; ++i)
      t += fmt::format("  ld.global.b32 %out{}, [%rd1+{}];\n", i, (inputs + i) * threads * 4);
    if (shared_bytes > 0) t += copy_tile(true);
    t += body;
    if (shared_bytes > 0) t += copy_tile(false);
    for (int i = 0; i < outputs; ++i)
      t += fmt::format("  st.global.b32 [%rd2+{}], %out{};\n", i * threads * 4, i);
    return t + "  ret;\n}\n";
  }

  struct Result {
    Report report;
    std::vector<uint32_t> registers;
    std::vector<uint8_t> tile;
  };
  Result run(const std::vector<uint32_t>& registers, std::vector<uint8_t> tile = {}) const {
    VirtualGpu gpu({.target = target, .seed = seed, .tensor_math = math});
    std::vector<uint32_t> in = registers;
    in.resize(std::max<size_t>(in.size(), 1));
    tile.resize(static_cast<size_t>(std::max(shared_bytes, 1)));
    DeviceAddress a = to_device(gpu, in), b = gpu.allocate(std::max(outputs, 1) * threads * 4);
    DeviceAddress c = to_device(gpu, tile), d = gpu.allocate(static_cast<int64_t>(tile.size()));
    void* arguments[] = {&a, &b, &c, &d};
    Function k = gpu.load_module(text(), "kernel.ptx").function("k");
    k.set_max_dynamic_shared(0);
    Result result;
    result.report = gpu.launch(k, {.block = {threads}, .arguments = arguments});
    result.registers = from_device<uint32_t>(gpu, b, static_cast<size_t>(outputs * threads));
    result.tile = from_device<uint8_t>(gpu, d, tile.size());
    return result;
  }

 private:
  // Every thread copies words tid, tid + threads, ...
  std::string copy_tile(bool in) const {
    const char* label = in ? "copy_in" : "copy_out";
    std::string t =
        fmt::format("  bar.sync 0;\n  mov.u32 %r20, tile;\n  shl.b32 %r21, %r1, 2;\n{}:\n", label);
    t += fmt::format("  setp.ge.u32 %p7, %r21, {};\n  @%p7 bra {}_end;\n", shared_bytes, label);
    t += "  add.u32 %r22, %r20, %r21;\n  cvt.u64.u32 %rd20, %r21;\n";
    t +=
        in ? "  add.u64 %rd20, %rd20, %rd3;\n  ld.global.b32 %r23, [%rd20];\n  st.shared.b32 [%r22], %r23;\n"
           : "  add.u64 %rd20, %rd20, %rd4;\n  ld.shared.b32 %r23, [%r22];\n  st.global.b32 [%rd20], %r23;\n";
    t += fmt::format("  add.u32 %r21, %r21, {};\n  bra {};\n{}_end:\n  bar.sync 0;\n", threads * 4, label,
                     label);
    return t;
  }
};

/// "{%in0, %in1, %in2}"
inline std::string register_list(const char* name, int first, int count) {
  std::string list = "{";
  for (int i = 0; i < count; ++i) list += fmt::format("{}%{}{}", i == 0 ? "" : ", ", name, first + i);
  return list + "}";
}

/// A stream of numbers that is the same everywhere.
class TestRandom {
 public:
  explicit TestRandom(uint32_t seed) : state_(seed * 2654435761u + 1) {}
  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    state_ ^= state_ << 5;
    return state_;
  }
  int below(int end) { return static_cast<int>(next() % static_cast<uint32_t>(end)); }

 private:
  uint32_t state_;
};

}  // namespace imbrex::vgpu
