// SPDX-License-Identifier: Apache-2.0
// PTX of nvcc 13 and a collection of instruction forms, all known to ptxas: everything must be read, pass the
// checker and survive printing.
#include <gtest/gtest.h>

#include "imbrex/core/error.h"
#include "ptx/check.h"
#include "ptx/reader.h"
#include "ptx/writer.h"
#include "ptx_text.h"

namespace imbrex::ptx {
namespace {

class Data : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Data, ReadsAndPassesTheChecker) {
  Module m = read(file_text(GetParam()), GetParam().string());
  size_t instructions = 0;
  for (const Function& f : m.functions) instructions += f.body.size();
  EXPECT_GT(instructions, 10u);
  for (const Diagnostic& d : check(m, GetParam().string())) ADD_FAILURE() << d.format();
}

TEST_P(Data, SurvivesPrinting) {
  Module m = read(file_text(GetParam()), GetParam().string());
  std::string printed = write(m);
  Module again = read(printed, "printed");
  std::string difference;
  EXPECT_TRUE(equivalent(m, again, &difference)) << difference;
  EXPECT_EQ(write(again), printed);
}

std::string test_name(const testing::TestParamInfo<std::filesystem::path>& info) {
  std::string name = info.param.stem().string();
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Nvcc, Data, testing::ValuesIn(data_files()), test_name);

// Facts of single files that a wrong but self-consistent reader would get wrong.
Module data(const char* name) {
  return read(file_text(std::string(IMBREX_SOURCE_DIR "/tests/ptx/data/") + name), name);
}

TEST(DataFacts, VectorAdd) {
  Module m = data("vector_add.sm_80.ptx");
  EXPECT_EQ(m.version, 90);
  EXPECT_EQ(m.target, "sm_80");
  ASSERT_EQ(m.functions.size(), 2u);
  const Function* printf = m.find_function("vprintf");
  ASSERT_NE(printf, nullptr);
  EXPECT_FALSE(printf->has_body);
  EXPECT_EQ(printf->linkage, Linkage::external);
  const Function* f = m.find_function("_Z10vector_addPKfS0_Pfi");
  ASSERT_NE(f, nullptr);
  EXPECT_TRUE(f->is_entry);
  EXPECT_EQ(param_offsets(*f), (std::vector<int64_t>{0, 8, 16, 24}));
  EXPECT_EQ(param_bytes(*f), 28);
  const Variable* text = m.find_variable("$str");
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text->size(), 27);  // the final zero is not written out
  EXPECT_EQ(std::string(text->initialiser.begin(), text->initialiser.end()), "%d elements, first %f, %s\n");
  const Instruction* call = nullptr;
  for (const Instruction& i : f->body)
    if (i.op == Op::call) call = &i;
  ASSERT_NE(call, nullptr);
  auto operands = f->operands_of(*call);
  ASSERT_EQ(operands.size(), 3u);
  EXPECT_EQ(f->elements_of(operands[0]).size(), 1u);
  EXPECT_EQ(m.functions[operands[1].id].name, "vprintf");
  EXPECT_EQ(f->elements_of(operands[2]).size(), 2u);
}

TEST(DataFacts, GlobalsHoldAddressesAndNumbers) {
  Module m = data("globals.sm_90a.ptx");
  const Variable* names = m.find_variable("names");
  ASSERT_NE(names, nullptr);
  ASSERT_EQ(names->relocations.size(), 2u);
  EXPECT_TRUE(names->relocations[1].generic);
  EXPECT_EQ(names->relocations[1].offset, 8u);
  EXPECT_EQ(m.variables[names->relocations[0].symbol.index].initialiser[0], 'f');
  const Variable* coefficients = m.find_variable("coefficients");
  ASSERT_NE(coefficients, nullptr);
  EXPECT_EQ(coefficients->space, Space::constant);
  EXPECT_EQ(coefficients->size(), 16);
  const uint8_t minus_two_and_a_half[] = {0, 0, 32, 192};
  EXPECT_TRUE(std::equal(std::begin(minus_two_and_a_half), std::end(minus_two_and_a_half),
                         coefficients->initialiser.begin() + 4));
  const Variable* managed = m.find_variable("shared_with_host");
  ASSERT_NE(managed, nullptr);
  EXPECT_EQ(managed->attributes, std::vector<std::string>{"managed"});
}

TEST(DataFacts, LaunchDirectives) {
  const Module m = data("hopper.sm_90a.ptx");
  const Function& f = m.functions.back();
  EXPECT_EQ(f.maxntid, (std::array<int, 3>{384, 1, 1}));
  EXPECT_EQ(f.reqnctapercluster, (std::array<int, 3>{2, 1, 1}));
  EXPECT_TRUE(f.explicitcluster);
  EXPECT_EQ(f.params[0].alignment(), 64);
  EXPECT_EQ(f.params[0].size(), 128);
}

TEST(DataFacts, LinesOfInlinedCode) {
  Module m = data("reduce.sm_90a.lineinfo.ptx");
  EXPECT_FALSE(m.files.empty());
  bool inlined = false;
  for (const Function& f : m.functions)
    for (const Instruction& i : f.body)
      inlined |= i.loc != Instruction::kNone && f.locs[i.loc].inlined_line != 0;
  EXPECT_TRUE(inlined);
}

}  // namespace
}  // namespace imbrex::ptx
