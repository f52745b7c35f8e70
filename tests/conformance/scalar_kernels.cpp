// SPDX-License-Identifier: Apache-2.0
// Micro-kernels of the scalar forms: every thread reads up to three operands and writes one result. Operands
// are edge values and random ones.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "families.h"
#include "imbrex/runtime/device_tensor.h"
#include "scalar_forms.h"

namespace imbrex::conformance {
namespace {

uint64_t float_bits(double value, const std::string& kind) {
  HostTensor one(kind == "f64" ? float64 : kind == "f32" ? float32 : kind == "f16" ? float16 : bfloat16, {1});
  one.set(0, value);
  uint64_t bits = 0;
  std::memcpy(&bits, one.bytes().data(), one.bytes().size());
  return bits;
}

int width(const std::string& kind) { return kind.ends_with("64") ? 64 : kind.ends_with("32") ? 32 : 16; }

/// Values where things go wrong.
std::vector<uint64_t> edges(const std::string& kind) {
  std::vector<uint64_t> values;
  if (kind[0] == 'b' && kind != "bf16") {
    for (uint64_t v : {0ull,
                       1ull,
                       2ull,
                       3ull,
                       7ull,
                       8ull,
                       15ull,
                       16ull,
                       17ull,
                       31ull,
                       32ull,
                       33ull,
                       63ull,
                       64ull,
                       65ull,
                       127ull,
                       128ull,
                       255ull,
                       256ull,
                       0x7FFFull,
                       0x8000ull,
                       0xFFFFull,
                       0x10000ull,
                       0x7FFFFFFFull,
                       0x80000000ull,
                       0xFFFFFFFFull,
                       0x100000000ull,
                       0x7FFFFFFFFFFFFFFFull,
                       0x8000000000000000ull}) {
      values.push_back(v);
      values.push_back(~v);
    }
    return values;
  }
  const int mantissa = kind == "f64" ? 52 : kind == "f32" ? 23 : kind == "f16" ? 10 : 7;
  const int exponent = kind == "f64" ? 11 : kind == "f16" ? 5 : 8;
  const uint64_t infinity = ((uint64_t{1} << exponent) - 1) << mantissa,
                 sign = uint64_t{1} << (width(kind) - 1);
  for (uint64_t v :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, (uint64_t{1} << mantissa) - 1, uint64_t{1} << mantissa,
        (uint64_t{1} << mantissa) + 1, infinity - 1, infinity, infinity + 1,
        infinity | uint64_t{1} << (mantissa - 1), infinity | ((uint64_t{1} << mantissa) - 1)})
    values.insert(values.end(), {v, v | sign});
  for (double v : {1.0,
                   0.5,
                   1.5,
                   2.5,
                   3.5,
                   0.49999997,
                   0.1,
                   3.0,
                   127.5,
                   128.5,
                   255.5,
                   32767.5,
                   65535.5,
                   2147483647.0,
                   2147483648.0,
                   4294967296.0,
                   9.2233720368547758e18,
                   1.8446744073709552e19,
                   1e-30,
                   1e30,
                   0.70710678})
    values.insert(values.end(), {float_bits(v, kind), float_bits(-v, kind)});
  return values;
}

uint64_t random_value(const std::string& kind, Random& random) {
  const uint64_t bits = random.next();
  if (kind[0] == 'b' && kind != "bf16") return bits >> random.below(64);
  // Half of them of every exponent, half near one, where operands meet.
  if ((bits & 1) != 0) return bits >> 1;
  const double near = static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-60;
  return float_bits(near, kind);
}

/// Two factors whose product lies within a few units of the smallest normal number, and a small addend.
void underflow_row(const std::string& kind, Random& random, uint64_t* row) {
  const bool is_half = kind == "f16";
  const int fraction = is_half ? 10 : 23;
  const uint64_t one = is_half ? 0x3C00 : 0x3F800000;
  const uint64_t mask = (uint64_t{1} << fraction) - 1, sign = uint64_t{1} << (is_half ? 15 : 31);
  const int shift = is_half ? 7 : 63;  // 2^-shift times 2^-(shift or shift + 1) is at the edge
  const uint64_t m = random.below(4) == 0 ? random.below(4) : random.next() & mask;
  const double a = 1 + static_cast<double>(m) / static_cast<double>(mask + 1);
  // b = 1 / a, or 2 / a a bit below 2: the product's significand is at 1 or just below 2.
  const auto n = static_cast<int64_t>((2 / a - 1) * static_cast<double>(mask + 1));
  const uint64_t near = static_cast<uint64_t>(
      std::clamp<int64_t>(n + static_cast<int64_t>(random.below(5)) - 2, 0, static_cast<int64_t>(mask)));
  row[0] = (one - (static_cast<uint64_t>(shift) << fraction)) + m;
  row[1] = (one - (static_cast<uint64_t>(shift + (random.below(8) == 0 ? 0 : 1)) << fraction)) + near;
  // Zero, the smallest normal number, or a subnormal.
  const uint64_t addends[] = {0, mask + 1, random.next() & mask, mask + 2 + (random.next() & 3)};
  row[2] = addends[random.below(4)];
  for (int i = 0; i < 3; ++i) row[i] |= random.below(2) * sign;
}

/// Two numbers, or one, whose quotient or reciprocal lies within a few units of the smallest normal number.
void quotient_row(bool is_reciprocal, Random& random, uint64_t* row) {
  const uint64_t m = random.next() & 0x7FFFFF;
  row[0] = is_reciprocal ? 0x7E800000 + random.below(6) - 2 : uint64_t{64} << 23 | m;
  row[1] = (uint64_t{190} << 23 | m) + random.below(5) - 2;
  for (int i = 0; i < 2; ++i) row[i] |= random.below(2) << 31;
}

/// `count` rows of three operands; registers of 32 bits holding two halves get two draws.
std::vector<uint64_t> operands(const Form& form, int64_t count) {
  Random random(form.text);
  std::vector<uint64_t> rows(static_cast<size_t>(count) * 3);
  if (const size_t edge = form.values.find(" edge"); edge != std::string::npos) {
    const std::string kind = form.values.substr(0, edge);
    for (int64_t i = 0; i < count; ++i) {
      uint64_t* row = &rows[static_cast<size_t>(i) * 3];
      if (kind == "quotient" || kind == "reciprocal") {
        quotient_row(kind == "reciprocal", random, row);
        continue;
      }
      underflow_row(kind, random, row);
      if (kind != "f16" || width(form.operands[0]) != 32) continue;
      uint64_t upper[3];
      underflow_row(kind, random, upper);
      for (int p = 0; p < 3; ++p) row[p] |= upper[p] << 16;
    }
    return rows;
  }
  for (size_t position = 0; position < form.operands.size(); ++position) {
    const std::string& type = form.operands[position];
    std::string kind = type;
    bool is_pair = false;
    if (type[0] == 'b' && !form.values.empty() && form.values[0] != 'e' && width(type) <= 32) {
      kind = form.values;
      is_pair = width(type) == 32;
    }
    const std::vector<uint64_t> special = edges(kind);
    const auto n = static_cast<int64_t>(special.size());
    const bool has_room = count >= 2 * n * n;  // for every pair of edge values
    for (int64_t i = 0; i < count; ++i) {
      const auto draw = [&](int64_t at) {
        if (position == 0 && at < n * n && has_room) return special[static_cast<size_t>(at % n)];
        if (position == 1 && at < n * n && has_room) return special[static_cast<size_t>(at / n)];
        if (position == 0 && at < n) return special[static_cast<size_t>(at)];
        return random.below(has_room ? 8 : 3) == 0 ? special[random.below(special.size())]
                                                   : random_value(kind, random);
      };
      uint64_t value = draw(i);
      if (is_pair) value = (value & 0xFFFF) | (random_value(kind, random) & 0xFFFF) << 16;
      rows[static_cast<size_t>(i) * 3 + position] = value;
    }
  }
  return rows;
}

std::string replace(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

constexpr int kOperandStride = 24;

MicroKernel kernel_of(const Form& form, int64_t count) {
  Frame frame{
      .threads = 256, .ctas = static_cast<int>(count / 256), .in_stride = kOperandStride, .out_stride = 8};
  std::string text = form.text;
  for (size_t p = 0; p < form.operands.size(); ++p) {
    const std::string name = fmt::format("%op{}", p);
    frame.body += fmt::format("  .reg .{} {};\n  ld.global.{} {}, [%in+{}];\n", form.operands[p], name,
                              form.operands[p], name, 8 * p);
    text = replace(text, std::string("%") + static_cast<char>('a' + p), name);
  }
  frame.body += fmt::format("  .reg .{} %res;\n  {};\n", form.result, replace(text, "%d", "%res"));
  frame.body += form.result == "pred" ? "  selp.b32 %r0, 1, 0, %res;\n  st.global.b32 [%out], %r0;\n"
                                      : fmt::format("  st.global.{} [%out], %res;\n", form.result);
  const std::vector<uint64_t> rows = operands(form, count);
  std::vector<uint8_t> input(rows.size() * 8);
  std::memcpy(input.data(), rows.data(), input.size());
  const std::string note =
      form.values.find(" edge") != std::string::npos ? " at the smallest normal number" : "";
  return make_kernel(form.family, form.text + note, frame, std::move(input));
}

}  // namespace

void add_scalars(Kernels& out, int64_t values) {
  for (const Form& form : forms()) out.push_back(kernel_of(form, values));
}

Kernels all_kernels(int64_t scalar_values) {
  Kernels out;
  add_scalars(out, scalar_values);
  add_matrix_moves(out);
  add_mma(out);
  add_tensor_copies(out);
  add_tensor_maps(out);
  add_wgmma(out);
  add_wmma(out);
  add_sparse_products(out);
  add_im2col(out);
  add_cp_async(out);
  add_mbarrier(out);
  add_collectives(out);
  add_atomics(out);
  add_bulk_copies(out);
  add_clusters(out);
  add_barriers_and_fences(out);
  add_memory(out);
  add_control(out);
  // Lists of words overlap here and there.
  std::set<std::string> seen;
  std::erase_if(out, [&](const MicroKernel& kernel) {
    return !seen.insert(kernel.family + ": " + kernel.name).second;
  });
  return out;
}

}  // namespace imbrex::conformance
