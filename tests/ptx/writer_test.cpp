// SPDX-License-Identifier: Apache-2.0
#include "ptx/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "imbrex/core/error.h"
#include "ptx/builder.h"
#include "ptx/check.h"
#include "ptx/object_names.h"
#include "ptx/reader.h"

namespace imbrex::ptx {
namespace {

Module sample() {
  Module m;
  m.target = "sm_90a";
  uint32_t file = m.file("gemm.cpp");
  Variable smem;
  smem.name = "smem";
  smem.space = Space::shared;
  smem.linkage = Linkage::external;
  smem.align = 1024;
  smem.dims = {Variable::kUnsized};
  SymbolRef shared = m.add(smem);

  Builder b(m, "sample");
  b.function().maxntid = {128, 1, 1};
  SymbolRef pointer = b.param(ScalarType::u64, "a_ptr");
  SymbolRef map = b.param(ScalarType::b8, "a_map", 64, 128);
  Reg address_of_a = b.reg(ScalarType::b64);
  Reg shared_base = b.reg(ScalarType::u32, "base");
  Reg k = b.reg(ScalarType::s32, "offset_k");
  Reg x = b.reg(ScalarType::f32);
  Reg y = b.reg(ScalarType::f32);
  Reg p = b.reg(ScalarType::pred);
  LabelId loop = b.label("loop");
  LabelId end = b.label("end");
  b.loc(file, 12, 5);
  b.emit(Op::ld, {Mod::param, ScalarType::u64}, {address_of_a, address(pointer)});
  b.emit(Op::mov, {ScalarType::u32}, {shared_base, shared});
  b.emit(Op::mov, {ScalarType::s32}, {k, 0});
  b.bind(loop);
  b.loc(file, 13);
  b.comment("for offset_k in range(0, k_size, 64)");
  b.emit(Op::setp, {Mod::ge, ScalarType::s32}, {p, k, 4096});
  b.emit(Op::bra, {}, {end}).when(p);
  b.emit(Op::ld, {Mod::global, Mod::v2, ScalarType::f32}, {b.vec({x, y}), address(address_of_a, 8)});
  b.emit(Op::fma, {Mod::rn, ScalarType::f32}, {x, y, 1.5f, x}).unless(p);
  b.emit(Op::cp_async_bulk_tensor,
         {Mod::_2d, Mod::shared_cluster, Mod::global, Mod::mbarrier_complete_tx_bytes},
         {address(shared_base), b.tensor(address(map), {k, 0}), address(shared_base, 64)});
  b.emit(Op::and_, {ScalarType::b32}, {k, k, 0xffffff00u});
  b.emit(Op::bra, {Mod::uni}, {loop});
  b.bind(end);
  b.emit(Op::ret, {}, std::initializer_list<Operand>{});
  b.finish();
  return m;
}

TEST(Writer, Sample) {
  EXPECT_EQ(write(sample()), R"(.version 9.0
.target sm_90a
.address_size 64

.file 1 "gemm.cpp"
.extern .shared .align 1024 .b8 smem[];

.visible .entry sample(
	.param .u64 a_ptr,
	.param .align 64 .b8 a_map[128]
)
.maxntid 128, 1, 1
{
	.reg .b64 %rd<1>;
	.reg .b32 %base;
	.reg .b32 %offset_k;
	.reg .f32 %f<2>;
	.reg .pred %p<1>;
	.loc 1 12 5
	ld.param.u64 %rd0, [a_ptr];
	mov.u32 %base, smem;
	mov.s32 %offset_k, 0;
$loop:
	.loc 1 13 0
	// for offset_k in range(0, k_size, 64)
	setp.ge.s32 %p0, %offset_k, 4096;
	@%p0 bra $end;
	ld.global.v2.f32 {%f0, %f1}, [%rd0+8];
	@!%p0 fma.rn.f32 %f0, %f1, 0f3FC00000, %f0;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%base], [a_map, {%offset_k, 0}], [%base+64];
	and.b32 %offset_k, %offset_k, 0xFFFFFF00;
	bra.uni $loop;
$end:
	ret;
}
)");
}

TEST(Writer, ReadsBack) {
  Module m = sample();
  Module again = read(write(m));
  std::string difference;
  EXPECT_TRUE(equivalent(m, again, &difference)) << difference;
  EXPECT_TRUE(check(again).empty());
  EXPECT_TRUE(check(m).empty());
}

TEST(Writer, EquivalentNoticesDifferences) {
  auto differs = [](void (*change)(Module&)) {
    Module a = sample();
    Module b = sample();
    change(b);
    return !equivalent(a, b);
  };
  EXPECT_FALSE(differs([](Module&) {}));
  EXPECT_FALSE(differs([](Module& m) { m.functions[0].comments[0] = "other"; }));
  EXPECT_TRUE(differs([](Module& m) { m.target = "sm_80"; }));
  EXPECT_TRUE(differs([](Module& m) { m.variables[0].align = 16; }));
  EXPECT_TRUE(differs([](Module& m) { m.functions[0].body[3].guard_negated = true; }));
  EXPECT_TRUE(differs([](Module& m) { m.functions[0].body.pop_back(); }));
  EXPECT_TRUE(differs([](Module& m) { m.functions[0].labels[0].position = 0; }));
  EXPECT_TRUE(differs([](Module& m) { m.functions[0].locs[0].line = 1; }));
  EXPECT_TRUE(differs([](Module& m) { m.functions[0].maxntid = {64, 1, 1}; }));
  EXPECT_TRUE(differs([](Module& m) { m.functions[0].registers[2].type = ScalarType::b64; }));
  EXPECT_TRUE(differs([](Module& m) {
    m.functions[0].operands.back().value ^= 1;
    m.functions[0].operands.back().id ^= 1;
  }));
  EXPECT_TRUE(differs([](Module& m) { m.functions[0].body[2].suffix_array[0] = ScalarType::b32; }));
}

TEST(Builder, NamesStayApart) {
  Module m;
  m.target = "sm_80";
  Builder b(m, "k");
  Reg first = b.reg(ScalarType::b32, "x");
  Reg second = b.reg(ScalarType::b32, "x");
  Reg digit = b.reg(ScalarType::b32, "r0");  // would be a register of the range %r
  Reg special = b.reg(ScalarType::b32, "tid");
  Reg plain = b.reg(ScalarType::b32);
  LabelId a = b.label("loop");
  LabelId c = b.label("loop");
  b.bind(a);
  b.emit(Op::mov, {ScalarType::b32}, {first, second});
  b.emit(Op::mov, {ScalarType::b32}, {digit, special});
  b.bind(c);
  b.emit(Op::mov, {ScalarType::b32}, {plain, 0});
  b.finish();
  Module again = read(write(m));
  std::string difference;
  EXPECT_TRUE(equivalent(m, again, &difference)) << difference;
  EXPECT_EQ(again.functions[0].registers.size(), 5u);
}

TEST(Builder, NamesOfBarriersReadBack) {
  Module m;
  m.target = "sm_90";
  Builder b(m, "k");
  const Reg base = b.reg(ScalarType::b32, "base");
  const auto initialise = [&](std::string_view variable, int64_t offset) {
    const LabelId end = b.label(ready_label(variable));
    for (int64_t i = 0; i < 2; ++i)
      b.emit(Op::mbarrier_init, {Mod::shared_cta, ScalarType::b64}, {address(base, offset + 8 * i), 1});
    b.emit(Op::fence_mbarrier_init, {Mod::release, Mod::cluster}, std::initializer_list<Operand>{});
    b.bind(end);
  };
  initialise("pipe.full_barriers", 0);
  initialise("done", 16);
  initialise("", 32);
  initialise("done", 48);  // another of this name
  b.emit(Op::ret, {}, std::initializer_list<Operand>{});
  b.finish();
  const Module again = read(write(m));
  std::vector<std::string> names;
  for (uint32_t i = 0; i < again.functions[0].body.size(); ++i) {
    const std::string name = initialised_variable(again.functions[0], i);
    EXPECT_EQ(again.functions[0].body[i].op != Op::ret || name.empty(), true);
    if (again.functions[0].body[i].op == Op::mbarrier_init) names.push_back(name);
  }
  EXPECT_THAT(names, ::testing::ElementsAre("pipe.full_barriers", "pipe.full_barriers", "done", "done", "",
                                            "", "done", "done"));
}

TEST(Builder, AForgottenLabelIsAnInternalError) {
  Module m;
  m.target = "sm_80";
  Builder b(m, "k");
  b.emit(Op::bra, {}, {b.label("nowhere")});
  EXPECT_THROW(b.finish(), InternalError);
}

TEST(Builder, CommentsOfSeveralLines) {
  Module m;
  m.target = "sm_80";
  Builder b(m, "k");
  b.comment("first");
  b.comment("second");
  b.emit(Op::ret, {}, std::initializer_list<Operand>{});
  b.finish();
  EXPECT_NE(write(m).find("\t// first\n\t// second\n\tret;\n"), std::string::npos);
}

}  // namespace
}  // namespace imbrex::ptx
