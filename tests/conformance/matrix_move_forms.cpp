// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix and movmatrix.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr int kTile = 2048;  // the lanes' row numbers follow it in the input

// A tile of random bytes, then a row number a lane; `distinct` rows do not meet.
std::vector<uint8_t> rows_input(const std::string& name, bool distinct) {
  Random random(name);
  std::vector<uint8_t> input = random_bytes(kTile, random);
  std::vector<uint32_t> rows(kTile / 16);
  std::iota(rows.begin(), rows.end(), 0u);
  for (size_t i = rows.size() - 1; i > 0; --i) std::swap(rows[i], rows[random.below(i + 1)]);
  for (size_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = distinct ? rows[lane] : static_cast<uint32_t>(random.below(kTile / 16));
    for (int b = 0; b < 4; ++b) input.push_back(static_cast<uint8_t>(row >> 8 * b));
  }
  return input;
}

constexpr const char* kRowAddress =
    "  mad.wide.u32 %rd0, %lane, 4, %ginput;\n"
    "  ld.global.b32 %r0, [%rd0+2048];\n"
    "  mad.lo.u32 %r0, %r0, 16, %tile;\n";

void add_load(Kernels& out, int count, const std::string& trans, const std::string& space) {
  const std::string insn = fmt::format("ldmatrix.sync.aligned.m8n8.x{}{}{}.b16", count, trans, space);
  Frame frame{.tile_bytes = kTile, .out_stride = 4 * count};
  frame.body = fill_tile(frame, kTile) + "  bar.sync 0;\n" + kRowAddress;
  std::string address = "%r0";
  if (space.empty()) {
    frame.body += "  cvt.u64.u32 %rd1, %r0;\n  cvta.shared.u64 %rd1, %rd1;\n";
    address = "%rd1";
  }
  frame.body +=
      fmt::format("  {} {}, [{}];\n", insn, registers(4, count), address) + store_registers(4, count);
  out.push_back(make_kernel("matrix moves", insn, frame, rows_input(insn, false)));
}

void add_store(Kernels& out, int count, const std::string& trans, const std::string& space) {
  const std::string insn = fmt::format("stmatrix.sync.aligned.m8n8.x{}{}{}.b16", count, trans, space);
  Frame frame{.tile_bytes = kTile, .in_stride = 16};
  frame.body = fill_tile(frame, kTile) + "  bar.sync 0;\n" + kRowAddress + load_registers(4, count);
  std::string address = "%r0";
  if (space.empty()) {
    frame.body += "  cvt.u64.u32 %rd1, %r0;\n  cvta.shared.u64 %rd1, %rd1;\n";
    address = "%rd1";
  }
  frame.body += fmt::format("  {} [{}], {};\n  bar.sync 0;\n", insn, address, registers(4, count)) +
                dump_tile(frame, kTile);
  out.push_back(make_kernel("matrix moves", insn, frame, rows_input(insn, true), kTile));
}

}  // namespace

void add_matrix_moves(Kernels& out) {
  for (int count : {1, 2, 4})
    for (const char* trans : {"", ".trans"})
      for (const char* space : {".shared", ".shared::cta", ""}) {
        add_load(out, count, trans, space);
        add_store(out, count, trans, space);
      }
  const std::string insn = "movmatrix.sync.aligned.m8n8.trans.b16";
  Frame frame{.in_stride = 4, .out_stride = 4};
  frame.body = load_registers(4, 1) + fmt::format("  {} %r5, %r4;\n", insn) + store_registers(5, 1);
  Random random(insn);
  out.push_back(make_kernel("matrix moves", insn, frame, random_bytes(128, random)));
}

}  // namespace imbrex::conformance
