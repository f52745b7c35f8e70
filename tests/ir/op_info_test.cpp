// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/target.h"
#include "ir/ir.h"

namespace imbrex::ir {
namespace {

TEST(OpInfo, EveryRowReadsAndIsFoundByItsMnemonic) {
  for (int i = 0; i < static_cast<int>(Opcode::kCount); ++i) {
    const OpInfo& op = info(static_cast<Opcode>(i));
    EXPECT_EQ(opcode_from_mnemonic(op.mnemonic), op.code);
    EXPECT_NE(find_target(op.arch), nullptr) << op.mnemonic;
    EXPECT_TRUE(op.meaning.ends_with('.')) << op.mnemonic;
    EXPECT_TRUE(op.effect != Effect::kPure || !op.results.empty()) << op.mnemonic << " is pure for nothing";
  }
  EXPECT_EQ(opcode_from_mnemonic("no_such_op"), std::nullopt);
}

TEST(OpInfo, SpecificationsSayWhatTheStringsSay) {
  const OpInfo& store = info(Opcode::kStoreGlobal);
  ASSERT_EQ(store.operands.size(), 3u);
  EXPECT_EQ(store.operands[0].name, "dst");
  EXPECT_EQ(store.operands[0].kinds, 1u << static_cast<int>(TypeKind::kGlobal));
  EXPECT_TRUE(store.operands[2].is_variadic);
  EXPECT_TRUE(store.operands[2].is_integer);
  ASSERT_EQ(store.attrs.size(), 3u);
  EXPECT_EQ(store.attrs[0].kind, AttrKind::kInts);
  EXPECT_FALSE(store.attrs[0].is_optional);
  EXPECT_TRUE(store.attrs[1].is_optional);
  EXPECT_TRUE(info(Opcode::kConst).attrs[1].is_optional);
}

TEST(Function, NamesAreIdentifiersAndUnique) {
  Function f;
  EXPECT_EQ(f.new_value(Type::scalar(int32), "acc")->name, "acc");
  EXPECT_EQ(f.new_value(Type::scalar(int32), "acc")->name, "acc_1");
  EXPECT_EQ(f.new_value(Type::scalar(int32), "acc")->name, "acc_2");
  EXPECT_EQ(f.new_value(Type::scalar(int32), "acc_1")->name, "acc_1_1");
  EXPECT_EQ(f.new_value(Type::scalar(int32), "2 tiles")->name, "_2_tiles");
  EXPECT_EQ(f.new_value(Type::scalar(int32))->name, "");
}

TEST(Builder, AppendsToTheBlock) {
  Function f;
  Builder b(f);
  Value* one = b.constant(int32, 1);
  Value* two = b.constant(int32, 2);
  Value* sum = b.binary(Opcode::kAdd, one, one);
  Value* less = b.binary(Opcode::kLt, sum, one);
  const std::vector<Op*> expected = {one->def, two->def, sum->def, less->def};
  EXPECT_EQ(f.body.ops, expected);
  EXPECT_EQ(less->type, Type::scalar(boolean));
}

}  // namespace
}  // namespace imbrex::ir
