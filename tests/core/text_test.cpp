// SPDX-License-Identifier: Apache-2.0
#include "core/text.h"

#include <gtest/gtest.h>

#include "imbrex/core/dtype.h"
#include "imbrex/core/error.h"

namespace imbrex {
namespace {

TEST(Text, InternGivesOnePointerPerText) {
  std::string a = "kernel.cpp";
  EXPECT_EQ(intern(a), intern("kernel.cpp"));
  EXPECT_NE(intern(a), intern("other.cpp"));
}

TEST(Text, NearestWordFindsSlipsAndRefusesStrangers) {
  std::vector<std::string> words{"vector_add", "softmax", "layer_norm"};
  EXPECT_EQ(nearest_word("sofmax", words), "softmax");
  EXPECT_EQ(nearest_word("vectoradd", words), "vector_add");
  EXPECT_EQ(nearest_word("zzzzzzzzz", words), "");
  const std::vector<std::string> commands = {"run", "tune", "trace"};
  EXPECT_EQ(nearest_word("rnu", commands), "run");  // swapped neighbours are one error
  EXPECT_EQ(nearest_word("tarce", commands), "trace");
  EXPECT_EQ(nearest_word("nur", commands), "");
}

TEST(Error, FormatsPlaceMessageFactsAndHelp) {
  Diagnostic d{{"no_such_file.cpp", 42, "f"}, "dot: inner sizes differ", {"a  [128, 64]"}, "slice a"};
  EXPECT_EQ(d.format(),
            "no_such_file.cpp:42: error: dot: inner sizes differ\n  a  [128, 64]\n  help: slice a");
}

TEST(DataType, NamesRoundTrip) {
  for (int i = 0; i < DataType::kCount; ++i) {
    DataType t{static_cast<DataType::Code>(i)};
    EXPECT_EQ(DataType::from_name(t.name()), t);
  }
  EXPECT_FALSE(DataType::from_name("float33").has_value());
}

}  // namespace
}  // namespace imbrex
