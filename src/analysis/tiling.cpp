// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/tiling.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/target.h"
#include "imbrex/core/error.h"

namespace imbrex {
namespace {

double as_double(int64_t value) { return static_cast<double>(value); }
double element_bytes(DataType dtype) { return dtype.bits() / 8.0; }
double ceil_div(int64_t a, int64_t b) { return as_double((a + b - 1) / b); }

void check_positive(std::initializer_list<std::pair<const char*, int64_t>> extents) {
  for (const auto& [name, value] : extents)
    if (value < 1)
      throw LaunchError(Diagnostic{{}, fmt::format("{} is {}, it must be 1 or more", name, value), {}, ""});
}

void check(const MatmulTile& t) {
  check_positive({{"block_m", t.block_m},
                  {"block_n", t.block_n},
                  {"block_k", t.block_k},
                  {"stages", t.stages},
                  {"threads", t.threads},
                  {"reader_m", t.reader_m},
                  {"reader_n", t.reader_n},
                  {"instruction_m", t.instruction_m},
                  {"instruction_n", t.instruction_n},
                  {"instruction_k", t.instruction_k},
                  {"cluster_m", t.cluster_m},
                  {"cluster_n", t.cluster_n}});
}

}  // namespace

void MatmulTile::use_instructions_of(std::string_view target) {
  const int64_t k = 256 / operands.bits();  // 32 bytes of depth per instruction
  const Target* known = find_target(target);
  const MatrixUnit unit = known != nullptr ? known->matrix_unit : MatrixUnit::kMma;
  operands_in_registers = unit == MatrixUnit::kMma;
  accumulates_in_registers = unit != MatrixUnit::kTcgen05;
  if (operands_in_registers) {
    reader_m = std::min<int64_t>(64, block_m), reader_n = std::min<int64_t>(64, block_n);
    instruction_m = 16, instruction_n = 8, instruction_k = k;
  } else {
    reader_m = instruction_m = accumulates_in_registers ? 64 : std::min<int64_t>(128, block_m);
    reader_n = instruction_n = std::min<int64_t>(256, block_n), instruction_k = k;
  }
}

int64_t MatmulTile::shared_bytes() const {
  return (block_m + block_n) * block_k * stages * operands.bits() / 8;
}

int64_t MatmulTile::registers_per_thread(int64_t besides) const {
  if (!accumulates_in_registers) return besides;
  const int64_t bits = block_m * block_n * accumulator.bits();
  return (bits + 32 * threads - 1) / (32 * threads) + besides;
}

CtaResources MatmulTile::resources(int64_t registers_besides) const {
  check(*this);
  return {.threads = threads,
          .registers_per_thread = registers_per_thread(registers_besides),
          .shared_bytes = shared_bytes(),
          .tensor_memory_columns =
              accumulates_in_registers ? 0 : block_n * ((block_m + 127) / 128) * accumulator.bits() / 32,
          .cluster_ctas = cluster_m * cluster_n};
}

double MatmulTile::intensity() const {
  check(*this);
  return 2.0 * as_double(block_m) * as_double(block_n) /
         (as_double(block_m + block_n) * element_bytes(operands));
}

Traffic matmul_traffic(const MatmulShape& s, const MatmulTile& t) {
  check(t);
  check_positive({{"m", s.m}, {"n", s.n}, {"k", s.k}});
  const double bytes = element_bytes(t.operands);
  const double m = as_double(s.m), n = as_double(s.n), k = as_double(s.k);
  const double result = m * n * element_bytes(t.result);
  const double tiles = ceil_div(s.m, t.block_m) * ceil_div(s.n, t.block_n);
  const double depth = ceil_div(s.k, t.block_k) * as_double(t.block_k);

  Traffic traffic;
  traffic.hbm = (m * k + k * n) * bytes + result;
  // A's tile is needed by every CTA along n; a cluster of cluster_n of them fetches it once.
  traffic.l2 =
      tiles * depth * bytes *
          (as_double(t.block_m) / as_double(t.cluster_n) + as_double(t.block_n) / as_double(t.cluster_m)) +
      result;
  const double fill = tiles * depth * bytes * as_double(t.block_m + t.block_n);
  const double readers = ceil_div(t.block_m, t.reader_m) * ceil_div(t.block_n, t.reader_n);
  traffic.shared = fill + tiles * depth * bytes * readers * as_double(t.reader_m + t.reader_n);
  const double instructions = tiles * ceil_div(t.block_m, t.instruction_m) *
                              ceil_div(t.block_n, t.instruction_n) * depth / as_double(t.instruction_k);
  const double im = as_double(t.instruction_m), in = as_double(t.instruction_n),
               ik = as_double(t.instruction_k);
  traffic.registers =
      t.accumulates_in_registers
          ? instructions * ((im * ik + ik * in) * bytes + 2 * im * in * element_bytes(t.accumulator))
          : 0;
  return traffic;
}

const RoofLevel& Roofline::bound() const {
  return *std::min_element(levels.begin(), levels.end(), [](const RoofLevel& a, const RoofLevel& b) {
    return a.attainable < b.attainable;
  });
}

Roofline roofline(const GpuModel& gpu, DataType operands, double flops, const Traffic& traffic) {
  Roofline result{
      .gpu = gpu.name, .operands = operands, .peak = gpu.peak(operands), .flops = flops, .levels = {}};
  if (result.peak <= 0)
    throw LaunchError(Diagnostic{{},
                                 fmt::format("{} has no unit that multiplies {}", gpu.title, operands.name()),
                                 {},
                                 "choose a type of its tensor cores, or float32"});
  if (flops <= 0 || std::min({traffic.hbm, traffic.l2, traffic.shared, traffic.registers}) < 0)
    throw LaunchError(
        Diagnostic{{}, "a roofline needs a positive number of operations and no negative bytes", {}, ""});
  auto add = [&](const char* name, double bytes, double bytes_per_second) {
    if (bytes <= 0) return;
    RoofLevel level{name, bytes, bytes_per_second, flops / bytes, result.peak / bytes_per_second, 0};
    level.attainable = std::min(result.peak, level.intensity * bytes_per_second);
    result.levels.push_back(level);
  };
  add("HBM", traffic.hbm, gpu.hbm_bytes_per_second);
  add("L2", traffic.l2, gpu.l2_bytes_per_second);
  add("shared memory", traffic.shared, gpu.shared_bytes_per_second());
  add("registers", traffic.registers, gpu.register_bytes_per_second());
  if (result.levels.empty())
    throw LaunchError(Diagnostic{{}, "a roofline needs the bytes of at least one level", {}, ""});
  return result;
}

}  // namespace imbrex
