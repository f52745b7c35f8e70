// SPDX-License-Identifier: Apache-2.0
// Replays what an H200 answered. golden/README.md says what the files hold.
#include <gtest/gtest.h>

#include <charconv>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/tensor_arith.h"

namespace imbrex::arith {
namespace {

/// One recorded output: operands of a row of a and a column of b, c, and the d that came back.
struct Row {
  std::vector<uint64_t> a, b;
  uint64_t c, d;
};

/// A recorded instruction, taken from its name: "mma.m16n8k16.f32.bf16", "wgmma.f32.e4m3.e5m2".
struct Recording {
  std::string name;
  bool wgmma = false;
  int64_t k = 0;
  std::string d_type, a_type, b_type;
  std::vector<Row> rows;
};

int digits_of(const std::string& type) {
  static const std::map<std::string, int> digits = {{"f16", 4},  {"bf16", 4}, {"tf32", 8},
                                                    {"e4m3", 2}, {"e5m2", 2}, {"s8", 2},
                                                    {"u8", 2},   {"s4", 1},   {"f64", 16}};
  return digits.at(type);
}

uint64_t hex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  EXPECT_TRUE(error == std::errc() && end == text.data() + text.size()) << text;
  return value;
}

std::vector<uint64_t> elements(const std::string& text, const std::string& type) {
  const auto digits = static_cast<size_t>(digits_of(type));
  std::vector<uint64_t> values;
  for (size_t at = 0; at < text.size(); at += digits)
    values.push_back(hex(std::string_view(text).substr(at, digits)));
  return values;
}

Recording parse_name(const std::string& name) {
  std::vector<std::string> parts;
  std::istringstream in(name);
  for (std::string part; std::getline(in, part, '.');) parts.push_back(part);
  Recording recording;
  recording.name = name;
  recording.wgmma = parts.at(0) == "wgmma";
  size_t next = 1;
  if (!recording.wgmma) recording.k = std::stoi(parts.at(next++).substr(parts[1].find('k') + 1));
  recording.d_type = parts.at(next++);
  recording.a_type = parts.at(next++);
  recording.b_type = next < parts.size() ? parts[next] : recording.a_type;
  if (recording.wgmma) recording.k = 256 / (4 * digits_of(recording.a_type));
  return recording;
}

std::vector<Recording> load(const std::string& file) {
  std::ifstream in(std::string(IMBREX_SOURCE_DIR) + "/tests/core/golden/" + file);
  EXPECT_TRUE(in.good()) << file;
  std::vector<Recording> recordings;
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string a, b, c, d;
    fields >> a >> b >> c >> d;
    if (a == "instruction") {
      recordings.push_back(parse_name(b));
      recordings.back().name += " " + c;
      continue;
    }
    Recording& recording = recordings.back();
    Row row{elements(a, recording.a_type), elements(b, recording.b_type), hex(c), hex(d)};
    row.a.resize(static_cast<size_t>(recording.k));  // trailing zeros are left out in the file
    row.b.resize(static_cast<size_t>(recording.k));
    recording.rows.push_back(row);
  }
  return recordings;
}

DataType float_type(const std::string& name) {
  static const std::map<std::string, DataType> types = {{"f16", float16},      {"bf16", bfloat16},
                                                        {"tf32", tfloat32},    {"f32", float32},
                                                        {"e4m3", float8_e4m3}, {"e5m2", float8_e5m2}};
  return types.at(name);
}

TEST(TensorGolden, FusedSumsOfHopperBitForBit) {
  size_t rows = 0;
  for (const Recording& recording : load("tensor_h200.txt")) {
    const auto arith = tensor_arith(90, recording.wgmma ? TensorInstruction::kWgmma : TensorInstruction::kMma,
                                    float_type(recording.a_type), float_type(recording.b_type),
                                    float_type(recording.d_type), recording.k);
    ASSERT_TRUE(arith) << recording.name;
    ASSERT_GE(recording.rows.size(), 40u) << recording.name;
    for (const Row& row : recording.rows) {
      const std::vector<uint32_t> a(row.a.begin(), row.a.end()), b(row.b.begin(), row.b.end());
      EXPECT_EQ(dot_accumulate(*arith, recording.k, a.data(), b.data(), static_cast<uint32_t>(row.c)), row.d)
          << recording.name << " row " << &row - recording.rows.data();
      ++rows;
    }
  }
  EXPECT_GE(rows, 1900u);
}

std::vector<int16_t> widened(const std::vector<uint64_t>& values, const std::string& type) {
  std::vector<int16_t> wide;
  for (uint64_t value : values) {
    auto x = static_cast<int16_t>(value);
    if (type == "s8") x = static_cast<int8_t>(value);
    if (type == "s4")
      x = static_cast<int16_t>(value >= 8 ? static_cast<int>(value) - 16 : static_cast<int>(value));
    wide.push_back(x);
  }
  return wide;
}

TEST(TensorGolden, IntegerAndDoubleSumsOfHopper) {
  size_t rows = 0;
  for (const Recording& recording : load("tensor_exact_h200.txt")) {
    for (const Row& row : recording.rows) {
      ++rows;
      const MatrixShape shape{1, 1, recording.k};
      if (recording.a_type == "f64") {
        std::vector<double> a, b;
        for (uint64_t bits : row.a) a.push_back(std::bit_cast<double>(bits));
        for (uint64_t bits : row.b) b.push_back(std::bit_cast<double>(bits));
        const auto c = std::bit_cast<double>(row.c);
        double d = 0;
        multiply_accumulate_f64(shape, a.data(), b.data(), &c, &d);
        EXPECT_EQ(std::bit_cast<uint64_t>(d), row.d) << recording.name;
        continue;
      }
      const auto a = widened(row.a, recording.a_type), b = widened(row.b, recording.b_type);
      const auto c = static_cast<int32_t>(row.c);
      int32_t d = 0;
      const bool saturate = recording.name.find(" sat") != std::string::npos;
      multiply_accumulate_int(shape, a.data(), b.data(), &c, &d, saturate);
      EXPECT_EQ(static_cast<uint32_t>(d), row.d) << recording.name;
    }
  }
  EXPECT_GE(rows, 250u);
}

}  // namespace
}  // namespace imbrex::arith
