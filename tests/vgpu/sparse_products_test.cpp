// SPDX-License-Identifier: Apache-2.0
// Products with a sparse A on the virtual GPU: mma.sp, wgmma.mma_async.sp and tcgen05.mma.sp, every type, against a plain
// loop over the elements that the metadata keeps. What it leaves out meets infinities in B.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/float_formats.h"
#include "imbrex/core/error.h"
#include "tcgen05_kernel.h"

namespace imbrex::vgpu {
namespace {

using testing::HasSubstr;

int bits_of(const std::string& type) {
  if (type == "tf32") return 32;
  if (type == "f16" || type == "bf16") return 16;
  return type == "s4" || type == "u4" || type == "e2m1" ? 4 : 8;
}
bool has_infinity(const std::string& type) { return bits_of(type) >= 16; }

uint32_t encode(const std::string& type, double value) {
  if (type == "f16") return arith::f32_to_f16(static_cast<float>(value));
  if (type == "bf16") return arith::f32_to_bf16(static_cast<float>(value));
  if (type == "tf32" || type == "f32") return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type == "e4m3") return static_cast<uint32_t>(arith::encode(arith::kE4M3, value));
  if (type == "e5m2") return static_cast<uint32_t>(arith::encode(arith::kE5M2, value));
  if (type == "e2m1") return static_cast<uint32_t>(arith::encode(arith::kE2M1, value));
  return static_cast<uint32_t>(static_cast<int>(value));
}

double decode_d(const std::string& type, uint32_t bits) {
  if (type == "f16") return arith::f16_to_f32(static_cast<uint16_t>(bits));
  if (type == "f32") return std::bit_cast<float>(bits);
  return static_cast<int32_t>(bits);
}

/// A stored with its metadata, B, and the sums a plain loop makes of them.
struct SparseProblem {
  int m, n, k;
  std::string type;
  int covered;                  // elements of k a code covers
  std::vector<double> a, b, c;  // [m][k / 2], [n][k], [m][n]
  std::vector<uint32_t> codes;  // [m][k / covered]
  std::vector<double> sums;     // c included

  SparseProblem(int m_, int n_, int k_, const std::string& type_, bool pairs, uint32_t seed)
      : m(m_),
        n(n_),
        k(k_),
        type(type_),
        covered(bits_of(type_) == 32 ? 2
                : pairs              ? 8
                                     : 4) {
    TestRandom random(seed);
    const bool is_unsigned = type[0] == 'u';
    const auto draw = [&] { return static_cast<double>(random.below(5) - (is_unsigned ? 0 : 2)); };
    a.resize(static_cast<size_t>(m * k / 2)), b.resize(static_cast<size_t>(n * k));
    for (double& v : a) v = draw();
    for (double& v : b) v = draw();
    c.resize(static_cast<size_t>(m * n));
    for (double& v : c) v = random.below(41) - 20;
    constexpr uint32_t kCodes[] = {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110};
    codes.resize(static_cast<size_t>(m * k / covered));
    for (uint32_t& code : codes)
      code = covered == 2 ? (random.below(2) == 0 ? 0b0100u : 0b1110u) : kCodes[random.below(6)];
    // Where no row of A has an element, B may hold anything: here one column of k.
    if (has_infinity(type)) {
      const int skipped = covered == 2 ? 1 : 3;
      for (int i = 0; i < m; ++i) codes[static_cast<size_t>(i * k / covered)] = 0b0100;
      for (int j = 0; j < n; ++j) b[static_cast<size_t>(j * k + skipped)] = INFINITY;
    }
    sums = c;
    for (int i = 0; i < m; ++i)
      for (int s = 0; s < k / 2; ++s)
        for (int j = 0; j < n; ++j)
          sums[static_cast<size_t>(i * n + j)] +=
              a[static_cast<size_t>(i * k / 2 + s)] * b[static_cast<size_t>(j * k + place(i, s))];
  }

  /// Where along k the stored element s of row i belongs.
  int place(int i, int s) const {
    const int kept = covered / 2;
    const uint32_t code = codes[static_cast<size_t>(i * k / covered + s / kept)];
    const int first = s / kept * covered;
    if (covered == 2) return first + (code == 0b1110 ? 1 : 0);
    if (covered == 4) return first + static_cast<int>(code >> 2 * (s % 2) & 3);
    return first + 2 * static_cast<int>(code >> 2 * (s % 4 / 2) & 3) + s % 2;
  }
  uint32_t code(int i, int index) const { return codes[static_cast<size_t>(i * k / covered + index)]; }
};

// Which lane of four, which bit: row g or g + 8 of 16 and code index; as the manual's figures show them, and an H200
// does it.
struct MetadataPlace {
  int lane, bit;
};
MetadataPlace metadata_place(int k, int covered, int bits, int selector, int row, int index) {
  const int row_bits = 4 * k / covered, g = row % 8, half = row / 8;
  if (row_bits == 16) return {4 * g + selector, 16 * half + 4 * index};
  if (bits >= 16) return {4 * g + 2 * selector + index / 4, 16 * half + index % 4 * 4};
  if (row_bits == 32) return {4 * g + 2 * selector + half, 4 * index};
  return {4 * g + half + index / 8 * 2, index % 8 * 4};
}

/// The 16 rows from `first` on, a word a lane; other lanes hold rubbish.
std::vector<uint32_t> metadata_words(const SparseProblem& p, int first, int selector) {
  std::vector<uint32_t> words(32, 0x12345678);
  for (int pass = 0; pass < 2; ++pass)
    for (int row = 0; row < 16; ++row)
      for (int index = 0; index < p.k / p.covered; ++index) {
        const MetadataPlace at = metadata_place(p.k, p.covered, bits_of(p.type), selector, row, index);
        uint32_t& word = words[static_cast<size_t>(at.lane)];
        word = pass == 0 ? 0 : word | p.code(first + row, index) << at.bit;
      }
  return words;
}

/// Element i of a lane's fragment, from bit 0 on.
void put(std::vector<uint32_t>& registers, int threads, int first, int thread, int i, int bits,
         uint32_t value) {
  const int per = 32 / bits;
  const uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
  registers[static_cast<size_t>((first + i / per) * threads + thread)] |= (value & mask) << i % per * bits;
}

// Stored A: four lanes hold 16 bytes of a row, then the next 16. Byte `byte` of row `row` (of 16) is in register
// `reg` of lane 4 (row % 8) + byte % 16 / 4.
void put_a(std::vector<uint32_t>& registers, int threads, int warp, const SparseProblem& p, int first_row) {
  const int bits = bits_of(p.type);
  for (int row = 0; row < 16; ++row)
    for (int s = 0; s < p.k / 2; ++s) {
      const int bit = s * bits, byte = bit / 8;
      const int thread = 32 * warp + 4 * (row % 8) + byte % 16 / 4, reg = row / 8 + 2 * (byte / 16);
      const uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
      registers[static_cast<size_t>(reg * threads + thread)] |=
          (encode(p.type, p.a[static_cast<size_t>((first_row + row) * p.k / 2 + s)]) & mask) << bit % 32;
    }
}

// mma.sp ----------------------------------------------------------------------------------------------------

struct MmaCase {
  int k;
  std::string type, d;
  int selector = 0;
  bool ordered = true;
};

RegisterKernel::Result run_mma(const MmaCase& c, const SparseProblem& p, TensorMath math,
                               std::vector<uint32_t> metadata, int& d_regs) {
  const int bits = bits_of(c.type), a_regs = 8 * c.k * bits / 1024, b_regs = 8 * c.k * bits / 1024;
  const int d_bits = c.d == "f16" ? 16 : 32;
  d_regs = 4 * d_bits / 32;
  std::vector<uint32_t> registers(static_cast<size_t>((a_regs + b_regs + d_regs + 1) * 32));
  put_a(registers, 32, 0, p, 0);
  for (int l = 0; l < 32; ++l) {
    const int per_chunk = 32 / bits;  // elements a register
    for (int i = 0; i < b_regs * per_chunk; ++i) {
      const int k = i % per_chunk + l % 4 * per_chunk + i / per_chunk * 4 * per_chunk;
      put(registers, 32, a_regs, l, i, bits, encode(c.type, p.b[static_cast<size_t>(l / 4 * c.k + k)]));
    }
    for (int i = 0; i < 4; ++i)
      put(registers, 32, a_regs + b_regs, l, i, d_bits,
          encode(c.d, p.c[static_cast<size_t>((l / 4 + 8 * (i / 2)) * 8 + 2 * (l % 4) + i % 2)]));
    registers[static_cast<size_t>((a_regs + b_regs + d_regs) * 32 + l)] = metadata[static_cast<size_t>(l)];
  }
  RegisterKernel kernel;
  kernel.inputs = a_regs + b_regs + d_regs + 1;
  kernel.outputs = d_regs;
  kernel.math = math;
  kernel.body = fmt::format(
      "  mma.sp{}.sync.aligned.m16n8k{}.row.col.{}.{}.{}.{} {}, {}, {}, {}, %in{}, {};\n",
      c.ordered ? "::ordered_metadata" : "", c.k, c.d, c.type, c.type, c.d, register_list("out", 0, d_regs),
      register_list("in", 0, a_regs), register_list("in", a_regs, b_regs),
      register_list("in", a_regs + b_regs, d_regs), a_regs + b_regs + d_regs, c.selector);
  return kernel.run(registers);
}

void check_mma(const MmaCase& c, TensorMath math) {
  SCOPED_TRACE(fmt::format("mma.sp k{} {} to {} selector {}", c.k, c.type, c.d, c.selector));
  const SparseProblem p(16, 8, c.k, c.type, bits_of(c.type) == 4, static_cast<uint32_t>(c.k + c.selector));
  int d_regs = 0;
  const RegisterKernel::Result result = run_mma(c, p, math, metadata_words(p, 0, c.selector), d_regs);
  ASSERT_TRUE(result.report.clean()) << result.report.format();
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i) {
      const int row = l / 4 + 8 * (i / 2), column = 2 * (l % 4) + i % 2;
      const uint32_t word = result.registers[static_cast<size_t>((d_regs == 2 ? i / 2 : i) * 32 + l)];
      const uint32_t bits = d_regs == 2 ? word >> 16 * (i % 2) & 0xFFFF : word;
      ASSERT_EQ(decode_d(c.d, bits), p.sums[static_cast<size_t>(row * 8 + column)]) << row << ", " << column;
    }
}

std::vector<MmaCase> mma_cases() {
  std::vector<MmaCase> cases;
  for (bool ordered : {true, false}) {
    for (int selector = 0; selector < 4; ++selector) {
      cases.push_back({16, "f16", "f32", selector, ordered});
      cases.push_back({16, "f16", "f16", selector, ordered});
      cases.push_back({16, "bf16", "f32", selector, ordered});
      cases.push_back({8, "tf32", "f32", selector, ordered});
    }
    for (int selector = 0; selector < 2; ++selector) {
      cases.push_back({32, "f16", "f32", selector, ordered});
      cases.push_back({32, "bf16", "f32", selector, ordered});
      cases.push_back({16, "tf32", "f32", selector, ordered});
      for (const char* type : {"s8", "u8"}) cases.push_back({32, type, "s32", selector, ordered});
      for (const char* type : {"s4", "u4"}) cases.push_back({64, type, "s32", selector, ordered});
    }
    for (const char* type : {"s8", "u8"}) cases.push_back({64, type, "s32", 0, ordered});
    for (const char* type : {"s4", "u4"}) cases.push_back({128, type, "s32", 0, ordered});
    for (const char* type : {"e4m3", "e5m2"}) cases.push_back({64, type, "f32", 0, ordered});
  }
  return cases;
}

TEST(SparseMma, EveryShapeExact) {
  for (const MmaCase& c : mma_cases()) check_mma(c, TensorMath::kExact);
}
TEST(SparseMma, EveryShapeFast) {
  for (const MmaCase& c : mma_cases()) check_mma(c, TensorMath::kFast);
}

TEST(SparseMma, MetadataThatMeansNothingIsReported) {
  const MmaCase c{16, "f16", "f32"};
  SparseProblem p(16, 8, 16, "f16", false, 1);
  int d_regs = 0;
  p.codes[3 * 4 + 2] = 0b0101;  // row 3, k 8 to 11: the second twice
  Report report = run_mma(c, p, TensorMath::kFast, metadata_words(p, 0, 0), d_regs).report;
  EXPECT_THAT(report.format(),
              HasSubstr("sparsity metadata 0b0101 of row 3, k 8 to 11: both places are the same"));
  p.codes[3 * 4 + 2] = 0b0001;
  report = run_mma(c, p, TensorMath::kFast, metadata_words(p, 0, 0), d_regs).report;
  EXPECT_THAT(report.format(),
              HasSubstr("0b0001 of row 3, k 8 to 11: the first place lies behind the second"));
  // Only the ordered form asks for the order.
  report =
      run_mma({16, "f16", "f32", 0, false}, p, TensorMath::kFast, metadata_words(p, 0, 0), d_regs).report;
  EXPECT_TRUE(report.clean()) << report.format();
  SparseProblem t(16, 8, 8, "tf32", false, 1);
  t.codes[2] = 0b1000;
  report = run_mma({8, "tf32", "f32"}, t, TensorMath::kFast, metadata_words(t, 0, 0), d_regs).report;
  EXPECT_THAT(report.format(), HasSubstr("32-bit elements have 0b0100 (the first) and 0b1110 (the second)"));
}

TEST(SparseMma, SelectorsThatDoNotExistAreRefused) {
  const SparseProblem p(16, 8, 64, "s8", false, 1);
  int d_regs = 0;
  try {
    run_mma({64, "s8", "s32", 1}, p, TensorMath::kFast, metadata_words(p, 0, 0), d_regs);
    FAIL() << "was taken";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("sparsity selector 1: this shape takes 0"));
  }
}

// wgmma.sp --------------------------------------------------------------------------------------------------

struct WgmmaCase {
  std::string type, d;
  int n;
  bool a_in_registers;
  int selector = 0;
};

// K-major without a swizzle: core matrices of 8 rows and 16 bytes, 128 bytes apart along K.
int tile_offset(int row, int byte, int row_bytes) {
  return row / 8 * row_bytes * 8 + row % 8 * 16 + byte / 16 * 128 + byte % 16;
}
uint64_t tile_descriptor(int row_bytes) {
  return uint64_t{8} << 16 | static_cast<uint64_t>(row_bytes / 2) << 32;
}

void check_wgmma(const WgmmaCase& c, TensorMath math) {
  SCOPED_TRACE(fmt::format("wgmma.sp {} to {} n{} {} selector {}", c.type, c.d, c.n,
                           c.a_in_registers ? "A in registers" : "", c.selector));
  constexpr int kM = 64, kThreads = 128, kBAt = 4096;
  const int bits = bits_of(c.type), k = 512 / bits, es = bits / 8;
  const SparseProblem p(kM, c.n, k, c.type, false, static_cast<uint32_t>(c.n + k));
  const bool half = c.d == "f16";
  const int d_regs = half ? c.n / 4 : c.n / 2;
  std::vector<uint32_t> registers(static_cast<size_t>((5 + d_regs) * kThreads));
  std::vector<uint8_t> tile(kBAt + 16384, 0xEE);
  for (int s = 0; s < k / 2; ++s)
    for (int i = 0; i < kM; ++i) {
      const uint32_t value = encode(c.type, p.a[static_cast<size_t>(i * k / 2 + s)]);
      std::memcpy(&tile[static_cast<size_t>(tile_offset(i, s * es, 32))], &value, static_cast<size_t>(es));
    }
  for (int x = 0; x < k; ++x)
    for (int j = 0; j < c.n; ++j) {
      const uint32_t value = encode(c.type, p.b[static_cast<size_t>(j * k + x)]);
      std::memcpy(&tile[static_cast<size_t>(kBAt + tile_offset(j, x * es, 64))], &value,
                  static_cast<size_t>(es));
    }
  for (int w = 0; w < 4; ++w) {
    put_a(registers, kThreads, w, p, 16 * w);
    const std::vector<uint32_t> words = metadata_words(p, 16 * w, c.selector);
    for (int l = 0; l < 32; ++l)
      registers[static_cast<size_t>(4 * kThreads + 32 * w + l)] = words[static_cast<size_t>(l)];
  }
  const auto row = [](int t, int i) { return 16 * (t / 32) + t % 32 / 4 + 8 * (i >> 1 & 1); };
  const auto column = [](int t, int i) { return 8 * (i >> 2) + 2 * (t % 4) + (i & 1); };
  for (int t = 0; t < kThreads; ++t)
    for (int i = 0; i < c.n / 2; ++i)
      put(registers, kThreads, 5, t, i, half ? 16 : 32,
          encode(c.d, p.c[static_cast<size_t>(row(t, i) * c.n + column(t, i))]));

  RegisterKernel kernel;
  kernel.threads = kThreads;
  kernel.inputs = 5;
  kernel.outputs = d_regs;
  kernel.start_outputs = true;
  kernel.shared_bytes = static_cast<int>(tile.size());
  kernel.math = math;
  std::string operands =
      fmt::format("{}, {}, %rd11, %in4, {}, 1", register_list("out", 0, d_regs),
                  c.a_in_registers ? register_list("in", 0, 4) : std::string("%rd10"), c.selector);
  if (c.d != "s32") operands += ", 1, 1";
  if (bits == 16) operands += c.a_in_registers ? ", 0" : ", 0, 0";
  kernel.body =
      fmt::format(R"(  fence.proxy.async;
  bar.sync 0;
  mov.u32 %r10, tile;
  and.b32 %r10, %r10, 0x3FFFF;
  add.u32 %r11, %r10, {};
  shr.u32 %r10, %r10, 4;
  shr.u32 %r11, %r11, 4;
  cvt.u64.u32 %rd10, %r10;
  cvt.u64.u32 %rd11, %r11;
  or.b64 %rd10, %rd10, {};
  or.b64 %rd11, %rd11, {};
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sp.sync.aligned.m64n{}k{}.{}.{}.{} {};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
)",
                  kBAt, tile_descriptor(32), tile_descriptor(64), c.n, k, c.d, c.type, c.type, operands);
  const RegisterKernel::Result result = kernel.run(registers, tile);
  ASSERT_TRUE(result.report.clean()) << result.report.format();
  for (int t = 0; t < kThreads; ++t)
    for (int i = 0; i < c.n / 2; ++i) {
      const uint32_t word = result.registers[static_cast<size_t>((half ? i / 2 : i) * kThreads + t)];
      ASSERT_EQ(decode_d(c.d, half ? word >> 16 * (i % 2) & 0xFFFF : word),
                p.sums[static_cast<size_t>(row(t, i) * c.n + column(t, i))])
          << row(t, i) << ", " << column(t, i);
    }
}

TEST(SparseWgmma, EveryType) {
  for (const TensorMath math : {TensorMath::kExact, TensorMath::kFast})
    for (const bool in_registers : {false, true}) {
      for (int selector = 0; selector < 2; ++selector) {
        check_wgmma({"f16", "f32", 24, in_registers, selector}, math);
        check_wgmma({"f16", "f16", 64, in_registers, selector}, math);
        check_wgmma({"bf16", "f32", 8, in_registers, selector}, math);
        check_wgmma({"tf32", "f32", 40, in_registers, selector}, math);
      }
      for (const char* type : {"e4m3", "e5m2"})
        for (const char* d : {"f32", "f16"}) check_wgmma({type, d, 16, in_registers}, math);
      for (const char* type : {"s8", "u8"}) check_wgmma({type, "s32", 32, in_registers}, math);
    }
  check_wgmma({"f16", "f32", 256, false, 0}, TensorMath::kFast);
}

// tcgen05.mma.sp --------------------------------------------------------------------------------------------

struct TensorCase {
  std::string kind, type, d;
  int k, m = 128, n = 32;
  bool a_in_tensor = false, ws = false;
  int selector = 0;
};

constexpr int kAColumn = 96, kMetadataColumn = 112, kScaleColumn = 120;

uint32_t instruction_descriptor(const TensorCase& c) {
  const bool scaled = c.kind.starts_with("mx");
  const uint32_t code = c.kind == "f16"                                  ? (c.type == "bf16" ? 1u : 0u)
                        : c.kind == "tf32"                               ? 2u
                        : c.kind == "i8"                                 ? (c.type == "s8" ? 1u : 0u)
                        : c.type == "e5m2" || c.kind.starts_with("mxf4") ? 1u
                                                                         : 0u;
  uint32_t bits = 1u << 2 | code << 7 | code << 10 | static_cast<uint32_t>(c.n / 8) << 17;
  if (scaled) return bits | 1u << 23 | static_cast<uint32_t>(c.m / 128) << 27;
  const uint32_t d = c.d == "f16" ? 0 : c.d == "f32" ? 1 : 2;
  return bits | static_cast<uint32_t>(c.selector) | d << 4 | static_cast<uint32_t>(c.m / 16) << 24;
}

void check_tensor(const TensorCase& c, TensorMath math) {
  SCOPED_TRACE(fmt::format("kind::{} {} to {} m{}{}", c.kind, c.type, c.d, c.m,
                           c.a_in_tensor ? " A in tensor memory" : ""));
  const bool packed = c.kind.starts_with("mxf4"), scaled = c.kind.starts_with("mx");
  const int bits = bits_of(c.type), es_bits = packed ? 4 : std::max(bits, 8);
  const SparseProblem p(c.m, c.n, c.k, c.type, packed, static_cast<uint32_t>(c.m + c.k));
  constexpr int kBStart = 32768;
  std::vector<uint8_t> shared(Tcgen05Kernel::kSharedBytes, 0);
  Tcgen05Kernel::TensorImage tensor;
  for (int column = kAColumn; column < Tcgen05Kernel::kTensorColumns; ++column)
    for (int lane = 0; lane < 128; ++lane) tensor.at(lane, column) = 0;
  const auto lane_of = [&](int row) { return c.m == 64 ? 32 * (row / 16) + row % 16 : row; };
  const auto put_bits = [&](int at, int row_bytes, int row, int element, uint32_t value) {
    const int bit = element * es_bits;
    const auto byte = static_cast<size_t>(at + tile_offset(row, bit / 8, row_bytes));
    for (int b = 0; b < std::max(es_bits / 8, 1); ++b)
      shared[byte + static_cast<size_t>(b)] |=
          static_cast<uint8_t>((value >> 8 * b & (packed ? 0xF : 0xFF)) << bit % 8);
  };
  const int a_bytes = c.k / 2 * es_bits / 8, b_bytes = c.k * es_bits / 8;
  for (int i = 0; i < c.m; ++i)
    for (int s = 0; s < c.k / 2; ++s) {
      const uint32_t value = encode(c.type, p.a[static_cast<size_t>(i * c.k / 2 + s)]);
      const uint32_t mask = es_bits == 32 ? ~0u : (1u << es_bits) - 1;
      if (c.a_in_tensor)
        tensor.at(lane_of(i), kAColumn + s * es_bits / 32) |= (value & mask) << s * es_bits % 32;
      else
        put_bits(0, a_bytes, i, s, value);
    }
  for (int j = 0; j < c.n; ++j)
    for (int x = 0; x < c.k; ++x)
      put_bits(kBStart, b_bytes, j, x, encode(c.type, p.b[static_cast<size_t>(j * c.k + x)]));
  for (int i = 0; i < c.m; ++i)
    for (int index = 0; index < c.k / p.covered; ++index) {
      // 16 and 32 bits: eight lanes for each half of k, two rows a lane. Narrower: 64 bits in the row's own lane.
      const int lane = bits >= 16 ? lane_of(i / 16 * 16) + 8 * (index / 4) + i % 8 : lane_of(i);
      const int bit = bits >= 16 ? 16 * (i / 8 % 2) + index % 4 * 4 : index % 8 * 4;
      const int column = bits >= 16 ? c.selector : index / 8;
      tensor.at(lane, kMetadataColumn + column) |= p.code(i, index) << bit;
    }
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < c.n; ++j)
      tensor.at(lane_of(i), j) = encode(c.d, p.c[static_cast<size_t>(i * c.n + j)]);
  if (scaled)
    for (int column = kScaleColumn; column < kScaleColumn + 8; ++column)
      for (int lane = 0; lane < 128; ++lane) tensor.at(lane, column) = 0x7F7F7F7F;  // 1

  Tcgen05Kernel kernel;
  kernel.math = math;
  const auto descriptor = [](const char* reg, int start, int row_bytes) {
    return fmt::format("  add.u32 %r20, %r10, {};\n  cvt.u64.u32 {}, %r20;\n  or.b64 {}, {}, {};\n",
                       start / 16, reg, reg, reg, tile_descriptor(row_bytes) | uint64_t{1} << 46);
  };
  kernel.body =
      descriptor("%rd10", 0, a_bytes) + descriptor("%rd11", kBStart, b_bytes) +
      fmt::format(
          "  add.u32 %r21, %r11, {};\n  add.u32 %r22, %r11, {};\n  add.u32 %r24, %r11, {};\n"
          "  mov.u32 %r23, {};\n",
          kAColumn, kMetadataColumn, kScaleColumn, instruction_descriptor(c)) +
      fmt::format("  tcgen05.mma{}.sp.cta_group::1.kind::{}{} [%r11], {}, %rd11, [%r22], %r23{}, 1;\n",
                  c.ws ? ".ws" : "", c.kind, scaled ? ".block_scale" : "", c.a_in_tensor ? "[%r21]" : "%rd10",
                  scaled ? ", [%r24], [%r24+4]" : "");
  const Tcgen05Kernel::Result result = kernel.run({shared}, {tensor});
  ASSERT_TRUE(result.report.clean()) << result.report.format();
  Tcgen05Kernel::TensorImage out = result.tensor[0];
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < c.n; ++j)
      ASSERT_EQ(decode_d(c.d, out.at(lane_of(i), j)), p.sums[static_cast<size_t>(i * c.n + j)])
          << i << ", " << j;
}

TEST(SparseTcgen05, EveryKind) {
  const TensorCase cases[] = {
      {"f16", "f16", "f32", 32},         {"f16", "bf16", "f32", 32},     {"f16", "f16", "f16", 32},
      {"tf32", "tf32", "f32", 16},       {"f8f6f4", "e4m3", "f32", 64},  {"f8f6f4", "e5m2", "f16", 64},
      {"i8", "s8", "s32", 64},           {"i8", "u8", "s32", 64},        {"f16", "f16", "f32", 32, 64},
      {"f8f6f4", "e4m3", "f32", 64, 64}, {"tf32", "tf32", "f32", 16, 64}};
  for (TensorCase c : cases)
    for (const bool a_in_tensor : {false, true}) {
      c.a_in_tensor = a_in_tensor;
      for (const TensorMath math : {TensorMath::kExact, TensorMath::kFast}) check_tensor(c, math);
    }
  for (int selector = 1; selector < 4; ++selector) {
    TensorCase c = cases[0];
    c.selector = selector;
    check_tensor(c, TensorMath::kFast);
  }
  TensorCase ws = cases[0];
  ws.ws = true, ws.n = 64;
  check_tensor(ws, TensorMath::kFast);
}

TEST(SparseTcgen05, BlockScaledKinds) {
  check_tensor({"mxf8f6f4", "e4m3", "f32", 64}, TensorMath::kFast);
  check_tensor({"mxf4", "e2m1", "f32", 128}, TensorMath::kFast);
}

}  // namespace
}  // namespace imbrex::vgpu
