// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "imbrex/core/error.h"
#include "ptx/link.h"
#include "ptx/reader.h"
#include "ptx/writer.h"

namespace imbrex::ptx {
namespace {

using testing::HasSubstr;
using testing::Not;

LinkInput input(const std::string& name, const std::string& text,
                const std::string& head = ".version 8.0\n.target sm_80\n.address_size 64\n") {
  return {name, read(head + text, name)};
}

std::string linked(std::vector<LinkInput> inputs) {
  const std::string text = write(link(std::move(inputs)));
  EXPECT_NO_THROW(read(text, "linked")) << text;
  return text;
}

const char* const kCaller = R"(
.extern .func (.param .b32 r) twice(.param .b32 x);
.extern .global .u32 total;
.func hidden() { ret; }
.visible .entry k() {
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  { .param .b32 a; .param .b32 r; st.param.b32 [a], 3; call (r), twice, (a); ld.param.b32 %r1, [r]; }
  call hidden;
  mov.u64 %rd1, total; st.global.u32 [%rd1], %r1;
  ret;
}
)";
const char* const kCallee = R"(
.visible .global .u32 total = 5;
.func hidden() { trap; }
.visible .func (.param .b32 r) twice(.param .b32 x) {
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [x]; add.s32 %r2, %r1, %r1; st.param.b32 [r], %r2;
  call hidden;
  ret;
}
)";

TEST(Link, DeclarationsMeetTheirDefinitions) {
  for (const bool callee_first : {false, true}) {
    const Module module = link(
        {input("a.ptx", callee_first ? kCallee : kCaller), input("b.ptx", callee_first ? kCaller : kCallee)});
    ASSERT_NE(module.find_function("twice"), nullptr);
    EXPECT_TRUE(module.find_function("twice")->has_body);
    EXPECT_EQ(module.find_variable("total")->initialiser[0], 5);
    EXPECT_EQ(module.find_variable("total")->linkage, Linkage::visible);
    EXPECT_EQ(module.functions.size(), 4u);
    EXPECT_EQ(module.variables.size(), 1u);
    const std::string text = write(module);
    EXPECT_NO_THROW(read(text, "linked")) << text;
  }
}

TEST(Link, InternalNamesOfSeveralModulesStayApart) {
  const Module module = link({input("a.ptx", kCaller), input("b.ptx", kCallee)});
  const Function *first = module.find_function("hidden"), *second = module.find_function("hidden__2");
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(first->body[0].op, Op::ret);
  EXPECT_EQ(second->body[0].op, Op::trap);
  // Each module calls its own.
  EXPECT_THAT(write(module, *module.find_function("k"), module.find_function("k")->body[3]),
              HasSubstr("hidden"));
  bool calls_second = false;
  for (const Instruction& insn : module.find_function("twice")->body)
    calls_second |=
        write(module, *module.find_function("twice"), insn).find("hidden__2") != std::string::npos;
  EXPECT_TRUE(calls_second);
}

TEST(Link, AVisibleNameWinsOverAnInternalOne) {
  const Module module = link({input("a.ptx", ".func f() { ret; }\n.visible .entry k() { call f; ret; }"),
                              input("b.ptx", ".visible .func f() { trap; }")});
  EXPECT_EQ(module.find_function("f")->body[0].op, Op::trap);
  EXPECT_EQ(module.find_function("f__2")->body[0].op, Op::ret);
}

TEST(Link, OfWeakDefinitionsOneStays) {
  const char* const weak = ".weak .global .u32 once = 1;\n.weak .func f() { ret; }";
  const Module module =
      link({input("a.ptx", weak), input("b.ptx", weak), input("c.ptx", ".visible .func f() { trap; }")});
  EXPECT_EQ(module.functions.size(), 1u);
  EXPECT_EQ(module.variables.size(), 1u);
  EXPECT_EQ(module.find_function("f")->body[0].op, Op::trap);
}

TEST(Link, TablesOfFunctionsNameThoseOfTheirModule) {
  const char* const text = ".func f() { ret; }\n.global .u64 table[1] = {f};";
  const std::string both = linked({input("a.ptx", text), input("b.ptx", text)});
  EXPECT_THAT(both, HasSubstr("table[1] = {f}"));
  EXPECT_THAT(both, HasSubstr("table__2[1] = {f__2}"));
}

TEST(Link, TheNewestVersionAndTargetAreTaken) {
  const std::string text = linked(
      {input("a.ptx", ".visible .entry a() { ret; }", ".version 8.0\n.target sm_90a\n.address_size 64\n"),
       input("b.ptx", ".visible .entry b() { ret; }", ".version 9.0\n.target sm_80\n.address_size 64\n")});
  EXPECT_THAT(text, HasSubstr(".version 9.0\n.target sm_90a\n"));
}

TEST(Link, LinesKeepTheirFiles) {
  const char* const text = ".file 1 \"%s.cu\"\n.visible .entry %s() {\n.loc 1 7 0\nret;\n}";
  const auto of = [&](std::string name) {
    std::string one = text;
    for (size_t at; (at = one.find("%s")) != std::string::npos;) one.replace(at, 2, name);
    return input(name, one);
  };
  const Module module = link({of("a"), of("b")});
  ASSERT_EQ(module.files.size(), 2u);
  EXPECT_EQ(module.find_function("b")->locs[0].file, module.files[1].index);
  EXPECT_EQ(module.files[1].path, "b.cu");
}

TEST(Link, WhatCannotBeIsNamedWithItsModules) {
  const auto refused = [](std::vector<LinkInput> inputs) -> std::string {
    try {
      link(std::move(inputs));
    } catch (const CompileError& error) {
      return error.what();
    }
    return "";
  };
  const std::string twice =
      refused({input("a.ptx", ".visible .func f() { ret; }"), input("b.ptx", ".visible .func f() { ret; }")});
  EXPECT_THAT(twice, HasSubstr("'f' is defined in a.ptx and in b.ptx"));
  EXPECT_THAT(
      refused({input("a.ptx", ".visible .func f() { ret; }"), input("b.ptx", ".visible .global .u32 f;")}),
      HasSubstr("'f' is a function in a.ptx and a variable in b.ptx"));
  EXPECT_THAT(refused({input("a.ptx", kCaller), input("b.ptx", ".visible .entry e() { ret; }")}),
              HasSubstr("'total' is declared `.extern` in a.ptx and defined nowhere"));
  EXPECT_THAT(linked({input("a.ptx", ".extern .func f();\n.visible .entry k() { call f; ret; }"),
                      input("b.ptx", "")}),
              Not(HasSubstr("f {")));
}

}  // namespace
}  // namespace imbrex::ptx
