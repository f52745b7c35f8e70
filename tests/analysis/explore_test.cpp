// SPDX-License-Identifier: Apache-2.0
// The page of `imbrex explore` computes what the C++ computes: a headless browser runs it over a grid of
// settings.
#include "../skip.h"
#include "browser.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/banks.h"
#include "imbrex/inspect/layout_tools.h"
#include "imbrex/inspect/tiling.h"

namespace imbrex {
namespace {

using Json = nlohmann::json;

TEST(ExplorePage, ComputesWhatTheLibraryComputes) {
  const std::optional<Json> checked = testing::Page("explore").check("check");
  if (!checked) IMBREX_SKIP(browser);
  const Json& page = *checked;
  ASSERT_GT(page["tiles"].size(), 2000u);
  for (const Json& row : page["tiles"]) {
    const GpuModel& gpu = gpu_model(row[0].get<std::string>());
    MatmulTile tile{
        .block_m = row[1], .block_n = row[2], .block_k = row[3], .stages = row[4], .threads = row[5]};
    tile.use_instructions_of(gpu.target);
    const CtaResources resources = tile.resources();
    const Occupancy o = occupancy(gpu.target, resources);
    std::string bound;
    for (const std::string& name : o.bound) bound += (bound.empty() ? "" : ",") + name;
    ASSERT_EQ(row[6], resources.shared_bytes) << row;
    ASSERT_EQ(row[7], resources.registers_per_thread) << row;
    ASSERT_EQ(row[8], resources.tensor_memory_columns) << row;
    ASSERT_DOUBLE_EQ(row[9].get<double>(), tile.intensity()) << row;
    ASSERT_EQ(row[10], o.ctas_per_sm) << row;
    ASSERT_DOUBLE_EQ(row[11].get<double>(), o.fraction) << row;
    ASSERT_EQ(row[12], bound) << row;
  }
  ASSERT_GE(page["banks"].size(), 5 * 10 * (swizzle_names().size() - 1));  // one swizzle splits 16 bytes
  for (const Json& row : page["banks"]) {
    WarpAccess access{.addresses = {}, .bytes = row[0]};
    for (int64_t lane = 0; lane < 32; ++lane)
      access.addresses.push_back(swizzled_address(row[2].get<std::string>(), lane * row[1].get<int64_t>()));
    const BankReport r = bank_report(access);
    ASSERT_EQ(row[3], r.phases) << row;
    ASSERT_EQ(row[4], r.wavefronts) << row;
    ASSERT_EQ(row[5], r.degree) << row;
    ASSERT_EQ(row[6].get<std::vector<int>>(), r.bank) << row;
    ASSERT_EQ(row[7].get<std::vector<int>>(), r.cycle) << row;
  }
  ASSERT_GT(page["layouts"].size(), 15u);
  for (const Json& row : page["layouts"]) {
    const LayoutTable table = layout_table(row[0].get<std::string>());
    ASSERT_EQ(row[1], table.layout) << row[0];
    ASSERT_EQ(row[2], table.rows) << row[0];
    ASSERT_EQ(row[3], table.columns) << row[0];
    for (size_t i = 0; i < table.cells.size(); ++i) {
      ASSERT_EQ(row[4][i][0], table.cells[i].a) << row[0] << " element " << i;
      ASSERT_EQ(row[4][i][1], table.cells[i].b) << row[0] << " element " << i;
    }
  }
}

/// What the page draws of an expression: its canonical text, and the first cells of its table.
void expect_drawn(const Json& row, const LayoutTable& table) {
  ASSERT_EQ(row[1], table.layout) << row[0];
  const int64_t rows = row[2], columns = row[3];
  ASSERT_EQ(rows, std::min<int64_t>(table.rows, 8)) << row[0];
  ASSERT_EQ(columns, std::min<int64_t>(table.columns, 8)) << row[0];
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const Json& cell = row[4][static_cast<size_t>(r * columns + c)];
      ASSERT_EQ(cell[0], table.cell(r, c).a) << row[0] << " element " << r << ", " << c;
      ASSERT_EQ(cell[1], table.cell(r, c).b) << row[0] << " element " << r << ", " << c;
    }
}

// Expressions made at random, of which every third has a letter changed: the page draws and refuses what the library
// draws and refuses.
TEST(ExplorePage, TakesTheExpressionsThatTheLibraryTakes) {
  const std::optional<Json> checked = testing::Page("explore").check("check");
  if (!checked) IMBREX_SKIP(browser);
  size_t drawn = 0, refused = 0;
  for (const Json& row : (*checked)["random"]) {
    std::optional<LayoutTable> table;
    try {
      table = layout_table(row[0].get<std::string>());
    } catch (const Error&) {
    }
    ASSERT_EQ(row[1].is_null(), !table.has_value()) << row;
    if (table) expect_drawn(row, *table);
    ++(table ? drawn : refused);
  }
  EXPECT_GT(drawn, 200u);
  EXPECT_GT(refused, 200u);
}

TEST(ExplorePage, MarksWhatIsWrongInAnExpression) {
  const std::optional<Json> checked = testing::Page("explore").check("check");
  if (!checked) IMBREX_SKIP(browser);
  EXPECT_GE((*checked)["refused"].size(), 10u);
  for (const Json& row : (*checked)["refused"]) {  // where it is, is told there
    EXPECT_TRUE(row[1].get<bool>()) << row;
    EXPECT_THROW(layout_table(row[0].get<std::string>()), Error) << row[0];
  }
  const Json& shown = (*checked)["shown"];
  EXPECT_EQ(shown[0], "spatial(8, 4) * locl(2)");
  EXPECT_EQ(shown[1], "locl(2)");
  EXPECT_EQ(shown[2].get<std::string>().find("Character 17: expected spatial, column_spatial"), 0u)
      << shown[2];
}

}  // namespace
}  // namespace imbrex
