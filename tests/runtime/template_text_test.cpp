// SPDX-License-Identifier: Apache-2.0
#include "runtime/package/template_text.h"

#include <gtest/gtest.h>

#include "imbrex/core/error.h"

namespace imbrex::runtime {
namespace {

TEST(TemplateText, PlaceholdersInALine) {
  EXPECT_EQ(filled("int @NAME@_load(@ARGUMENTS@);\n", {{"NAME", "softmax"}, {"ARGUMENTS", "void"}}),
            "int softmax_load(void);\n");
  EXPECT_EQ(filled("no placeholder", {}), "no placeholder");
  EXPECT_EQ(filled("@A@", {{"A", "@B@"}}), "@B@") << "a value is not looked through";
}

TEST(TemplateText, APlaceholderAloneStandsForWholeLines) {
  EXPECT_EQ(filled("{\n@LINES@\n}\n", {{"LINES", "  a;\n  b;\n"}}), "{\n  a;\n  b;\n}\n");
  EXPECT_EQ(filled("{\n@LINES@\n}\n", {{"LINES", ""}}), "{\n}\n");
}

TEST(TemplateText, APlaceholderWithoutAValueIsABug) { EXPECT_THROW(filled("@NAME@", {}), InternalError); }

}  // namespace
}  // namespace imbrex::runtime
