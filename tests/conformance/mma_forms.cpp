// SPDX-License-Identifier: Apache-2.0
// mma.sync, every shape and type of sm_90a, on values of every profile (kernel.h): one CTA each.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

struct MmaRow {
  int m, n, k;
  std::string d, a, b;
  std::string tail = {};  // after the types
  std::string word = {};  // before the types
};

constexpr int kRounds = 2;  // CTAs a profile

void add_row(Kernels& out, const MmaRow& row) {
  const std::string name = fmt::format("mma.sync.aligned.m{}n{}k{}.row.col{}.{}.{}.{}.{}{}", row.m, row.n,
                                       row.k, row.word, row.d, row.a, row.b, row.d, row.tail);
  const bool is_double = row.d == "f64";
  const int word_bits = is_double ? 64 : 32;
  const auto count = [&](int elements, const std::string& type) {
    return elements * bits_of_type(type) / 32 / word_bits;
  };
  const int a = count(row.m * row.k, row.a), b = count(row.k * row.n, row.b), c = count(row.m * row.n, row.d);
  const int bytes = word_bits / 8;
  Frame frame{.ctas = kProfiles * kRounds, .in_stride = bytes * (a + b + c), .out_stride = bytes * c};
  const std::string prefix = is_double ? "%rd" : "%r";
  for (int i = 0; i < a + b + c; ++i)
    frame.body += fmt::format("  ld.global.b{} {}{}, [%in+{}];\n", word_bits, prefix, i, bytes * i);
  const int d = a + b + c;
  frame.body += fmt::format("  {} {}, {}, {}, {};\n", name, registers(d, c, prefix), registers(0, a, prefix),
                            registers(a, b, prefix), registers(a + b, c, prefix));
  for (int i = 0; i < c; ++i)
    frame.body += fmt::format("  st.global.b{} [%out+{}], {}{};\n", word_bits, bytes * i, prefix, d + i);
  Random random(name);
  std::vector<uint8_t> input;
  for (int cta = 0; cta < frame.ctas; ++cta)
    for (int thread = 0; thread < 32; ++thread) {
      const auto profile = static_cast<Profile>(cta % kProfiles);
      append_values(input, row.a, profile, row.m * row.k / 32, random);
      append_values(input, row.b, profile, row.k * row.n / 32, random);
      append_values(input, row.d, profile, row.m * row.n / 32, random);
    }
  out.push_back(make_kernel("mma.sync", name, frame, std::move(input)));
}

}  // namespace

void add_mma(Kernels& out) {
  for (const char* d : {"f32", "f16"})
    for (int k : {8, 16}) add_row(out, {16, 8, k, d, "f16", "f16"});
  for (int k : {8, 16}) add_row(out, {16, 8, k, "f32", "bf16", "bf16"});
  for (int k : {4, 8}) add_row(out, {16, 8, k, "f32", "tf32", "tf32"});
  for (const char* d : {"f32", "f16"})
    for (const char* a : {"e4m3", "e5m2"})
      for (const char* b : {"e4m3", "e5m2"})
        for (int k : {16, 32}) add_row(out, {16, 8, k, d, a, b});
  for (const char* saturate : {"", ".satfinite"}) {
    for (const char* a : {"s8", "u8"})
      for (const char* b : {"s8", "u8"}) {
        for (int k : {16, 32}) add_row(out, {16, 8, k, "s32", a, b, "", saturate});
        add_row(out, {8, 8, 16, "s32", a, b, "", saturate});
      }
    for (const char* a : {"s4", "u4"})
      for (const char* b : {"s4", "u4"}) {
        for (int k : {32, 64}) add_row(out, {16, 8, k, "s32", a, b, "", saturate});
        add_row(out, {8, 8, 32, "s32", a, b, "", saturate});
      }
  }
  for (const char* op : {".xor.popc", ".and.popc"}) {
    add_row(out, {8, 8, 128, "s32", "b1", "b1", op});
    for (int k : {128, 256}) add_row(out, {16, 8, k, "s32", "b1", "b1", op});
  }
  add_row(out, {8, 8, 4, "f64", "f64", "f64"});
  for (int k : {4, 8, 16}) add_row(out, {16, 8, k, "f64", "f64", "f64"});
}

}  // namespace imbrex::conformance
