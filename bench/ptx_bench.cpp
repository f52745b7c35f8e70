// SPDX-License-Identifier: Apache-2.0
// Reading, checking, building and printing PTX. Bars: a kernel of 5,000 instructions is built and printed in
// 2 ms, and read in 5.
#include <benchmark/benchmark.h>

#include "ptx/builder.h"
#include "ptx/check.h"
#include "ptx/reader.h"
#include "ptx/writer.h"

namespace imbrex::ptx {
namespace {

constexpr int kInstructions = 5000;

Module build() {
  Module m;
  m.target = "sm_90a";
  uint32_t file = m.file("kernel.cpp");
  Builder b(m, "kernel");
  Reg base = b.reg(ScalarType::b64);
  Reg p = b.reg(ScalarType::pred);
  std::vector<Reg> values(32);
  for (Reg& r : values) r = b.reg(ScalarType::f32);
  for (int i = 0; i < kInstructions; i += 5) {
    b.loc(file, static_cast<uint32_t>(i / 5 + 1));
    LabelId next = b.label("next");
    Reg fresh = b.reg(ScalarType::b32);
    b.emit(Op::ld, {Mod::global, Mod::v4, ScalarType::f32},
           {b.vec({values[0], values[1], values[2], values[3]}), address(base, i * 16)});
    b.emit(Op::fma, {Mod::rn, ScalarType::f32}, {values[4], values[0], values[1], values[4]});
    b.emit(Op::setp, {Mod::lt, ScalarType::f32}, {p, values[4], 1.0f});
    b.emit(Op::bra, {}, {next}).when(p);
    b.emit(Op::mad, {Mod::lo, ScalarType::s32}, {fresh, fresh, 132, i});
    b.bind(next);
  }
  b.emit(Op::ret, {}, std::initializer_list<Operand>{});
  b.finish();
  return m;
}

void build_and_write(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(write(build()));
}
BENCHMARK(build_and_write)->Unit(benchmark::kMicrosecond);

void write_only(benchmark::State& state) {
  Module m = build();
  for (auto _ : state) benchmark::DoNotOptimize(write(m));
}
BENCHMARK(write_only)->Unit(benchmark::kMicrosecond);

void read_text(benchmark::State& state) {
  std::string text = write(build());
  for (auto _ : state) benchmark::DoNotOptimize(read(text));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}
BENCHMARK(read_text)->Unit(benchmark::kMicrosecond);

void check_all(benchmark::State& state) {
  Module m = build();
  for (auto _ : state) benchmark::DoNotOptimize(check(m));
}
BENCHMARK(check_all)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace imbrex::ptx
