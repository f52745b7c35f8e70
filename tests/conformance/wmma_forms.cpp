// SPDX-License-Identifier: Apache-2.0
// wmma: load, multiply, store. How fragments lie in registers is open, so only matrices in memory are
// compared.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

struct Wmma {
  int m, n, k;
  std::string d, c, a, b;
  int a_registers, b_registers;
  bool saturate = false;
  int layouts = 0;  // bits: A col, B row, C col, D col
  bool is_shared = false, strides_given = true;
  std::string rounding = ".rn";  // of f64
};

int accumulator_registers(const std::string& type, int elements) {
  return type == "f64" ? 2 : type == "f16" ? 4 : elements / 32;
}

void add(Kernels& out, const Wmma& f) {
  const bool is_double = f.a == "f64";
  const std::string shape = fmt::format("m{}n{}k{}", f.m, f.n, f.k);
  const std::string a_order = (f.layouts & 1) != 0 ? "col" : "row",
                    b_order = (f.layouts & 2) != 0 ? "row" : "col",
                    c_order = (f.layouts & 4) != 0 ? "col" : "row",
                    d_order = (f.layouts & 8) != 0 ? "col" : "row";
  const std::string types =
      f.a == "f16" ? fmt::format("{}.{}", f.d, f.c) : fmt::format("{}.{}.{}.{}", f.d, f.a, f.b, f.c);
  const std::string insn = fmt::format("wmma.mma.sync.aligned.{}.{}.{}{}.{}{}", a_order, b_order, shape,
                                       is_double ? f.rounding : "", types, f.saturate ? ".satfinite" : "");
  const std::string name = fmt::format("{} c {} d {} {}{}", insn, c_order, d_order,
                                       f.is_shared ? "shared" : "global", f.strides_given ? "" : " dense");
  // Rows (or columns) are `pad` elements further apart than they must be where strides are written.
  struct Matrix {
    int64_t at, bytes;
    int stride;
  };
  int64_t at = 0;
  const auto place = [&](int lines, int length, const std::string& type) {
    const int element = bits_of_type(type) / 8;
    const int stride = length + (f.strides_given ? 32 / element : 0);
    const Matrix matrix{at, int64_t{lines} * stride * element, stride};
    at = (at + matrix.bytes + 255) / 256 * 256;
    return matrix;
  };
  const bool a_col = a_order == "col", b_row = b_order == "row", c_col = c_order == "col",
             d_col = d_order == "col";
  const Matrix a = place(a_col ? f.k : f.m, a_col ? f.m : f.k, f.a);
  const Matrix b = place(b_row ? f.k : f.n, b_row ? f.n : f.k, f.b);
  const Matrix c = place(c_col ? f.n : f.m, c_col ? f.m : f.n, f.c);
  const int64_t input_bytes = at;
  at = 0;
  const Matrix d = place(d_col ? f.n : f.m, d_col ? f.m : f.n, f.d);
  const auto input_size = static_cast<int>(input_bytes), output_size = static_cast<int>(at);
  constexpr int kCtas = kProfiles;
  Frame frame{.ctas = kCtas, .tile_bytes = f.is_shared ? input_size + output_size : 0};
  const std::string space = !f.is_shared ? "global" : f.layouts == 0 ? "shared" : "shared::cta";
  if (f.is_shared) {
    frame.body = fill_tile(frame, input_size);
    // What lies between the rows of D must be something.
    frame.body += fmt::format(
        "  mad.lo.u32 %r300, %lane, 4, %tile;\n  add.u32 %r301, %r300, {};\nclear:\n  st.shared.b32 "
        "[%r300+{}], 0;\n"
        "  add.u32 %r300, %r300, 128;\n  setp.lt.u32 %p0, %r300, %r301;\n  @%p0 bra clear;\n  bar.sync 0;\n",
        output_size, input_size);
  }
  const auto address = [&](int reg, bool is_input, const Matrix& matrix) {
    if (f.is_shared) {
      frame.body +=
          fmt::format("  add.u32 %r{}, %tile, {};\n", 310 + reg, matrix.at + (is_input ? 0 : input_size));
      return fmt::format("[%r{}]", 310 + reg);
    }
    frame.body += fmt::format("  mad.wide.u32 %rd{}, %cta, {}, {};\n  add.u64 %rd{}, %rd{}, {};\n", 60 + reg,
                              is_input ? input_size : output_size, is_input ? "%ginput" : "%goutput",
                              60 + reg, 60 + reg, matrix.at);
    return fmt::format("[%rd{}]", 60 + reg);
  };
  const auto stride = [&](const Matrix& matrix) {
    return f.strides_given ? fmt::format(", {}", matrix.stride) : std::string();
  };
  const std::string prefix = is_double ? "%rd" : "%r";
  const int c_registers = accumulator_registers(f.c, f.m * f.n),
            d_registers = accumulator_registers(f.d, f.m * f.n);
  const int b_first = f.a_registers, c_first = b_first + f.b_registers, d_first = c_first + c_registers;
  const std::string at_a = address(0, true, a), at_b = address(1, true, b), at_c = address(2, true, c),
                    at_d = address(3, false, d);
  frame.body += fmt::format("  wmma.load.a.sync.aligned.{}.{}.{}.{} {}, {}{};\n", a_order, shape, space, f.a,
                            registers(0, f.a_registers, prefix), at_a, stride(a));
  frame.body += fmt::format("  wmma.load.b.sync.aligned.{}.{}.{}.{} {}, {}{};\n", b_order, shape, space, f.b,
                            registers(b_first, f.b_registers, prefix), at_b, stride(b));
  frame.body += fmt::format("  wmma.load.c.sync.aligned.{}.{}.{}.{} {}, {}{};\n", c_order, shape, space, f.c,
                            registers(c_first, c_registers, prefix), at_c, stride(c));
  frame.body += fmt::format("  {} {}, {}, {}, {};\n", insn, registers(d_first, d_registers, prefix),
                            registers(0, f.a_registers, prefix), registers(b_first, f.b_registers, prefix),
                            registers(c_first, c_registers, prefix));
  frame.body += fmt::format("  wmma.store.d.sync.aligned.{}.{}.{}.{} {}, {}{};\n", d_order, shape, space, f.d,
                            at_d, registers(d_first, d_registers, prefix), stride(d));
  if (f.is_shared) {
    frame.body += fmt::format("  bar.sync 0;\n  add.u32 %tile, %tile, {};\n", input_size) +
                  dump_tile(frame, output_size);
  }
  Random random(name);
  std::vector<uint8_t> input;
  for (int cta = 0; cta < kCtas; ++cta) {
    const auto profile = static_cast<Profile>(cta % kProfiles);
    const auto values = [&](const std::string& type, const Matrix& from, int64_t end) {
      const int64_t bytes = end - from.at;
      append_values(input, type, profile, bytes * 8 / bits_of_type(type), random);
    };
    values(f.a, a, b.at);
    values(f.b, b, c.at);
    values(f.c, c, input_size);
  }
  out.push_back(make_kernel("wmma", name, frame, std::move(input), int64_t{output_size} * kCtas));
}

void add_all_ways(Kernels& out, Wmma f) {
  for (int layouts = 0; layouts < 16; ++layouts) {
    if (f.a == "f64" && f.m != 8) continue;
    f.layouts = layouts;
    add(out, f);
  }
  f.layouts = 0;
  f.is_shared = true;
  add(out, f);
  f.layouts = 5;
  add(out, f);
  f.is_shared = false;
  f.strides_given = false;
  add(out, f);
  f.layouts = 10;
  add(out, f);
}

}  // namespace

void add_wmma(Kernels& out) {
  const int shapes[][3] = {{16, 16, 16}, {32, 8, 16}, {8, 32, 16}};
  for (const auto& [m, n, k] : shapes) {
    for (const char* d : {"f32", "f16"})
      for (const char* c : {"f32", "f16"}) {
        const Wmma f{m, n, k, d, c, "f16", "f16", 8, 8};
        if (std::string(d) == c)
          add_all_ways(out, f);
        else if (std::string(d) == "f32")
          add(out, f);  // the virtual GPU has no f32 C with f16 D
      }
    add_all_ways(out, {m, n, k, "f32", "f32", "bf16", "bf16",
                       m == 32  ? 8
                       : m == 8 ? 2
                                : 4,
                       n == 32  ? 8
                       : n == 8 ? 2
                                : 4});
    const int a = m == 32 ? 4 : m == 8 ? 1 : 2, b = n == 32 ? 4 : n == 8 ? 1 : 2;
    for (const char* type : {"s8", "u8"}) {
      add_all_ways(out, {m, n, k, "s32", "s32", type, type, a, b});
      add(out, {m, n, k, "s32", "s32", type, type, a, b, true});
    }
  }
  add_all_ways(out, {16, 16, 8, "f32", "f32", "tf32", "tf32", 4, 4});
  add_all_ways(out, {8, 8, 4, "f64", "f64", "f64", "f64", 1, 1});
  for (const char* rounding : {".rz", ".rm", ".rp"})
    add(out, {.m = 8,
              .n = 8,
              .k = 4,
              .d = "f64",
              .c = "f64",
              .a = "f64",
              .b = "f64",
              .a_registers = 1,
              .b_registers = 1,
              .rounding = rounding});
}

}  // namespace imbrex::conformance
