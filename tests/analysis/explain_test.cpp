// SPDX-License-Identifier: Apache-2.0
// The pages of `imbrex explain`: what they tell without a script, and what their script does in a browser.
#include <gmock/gmock.h>

#include "../skip.h"
#include "browser.h"

namespace imbrex {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++n;
  return n;
}

TEST(ExplainPage, ReadsWithoutAScript) {
  const std::string html = testing::Page("explain ampere_matmul_v1").html();
  EXPECT_THAT(html, HasSubstr("name=\"viewport\" content=\"width=device-width"));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
  for (const char* section : {"nest", "traffic", "roof", "fit", "banks", "timeline", "code"})
    EXPECT_EQ(count(html, std::string("<section id=\"") + section + "\">"), 1u) << section;
  EXPECT_THAT(html, HasSubstr("<b class=\"good\">verified</b>"));
  EXPECT_THAT(html, HasSubstr("The virtual GPU moved exactly these bytes"));
  EXPECT_THAT(html, HasSubstr("the prediction from the layouts is the same"));
  EXPECT_THAT(html, HasSubstr("-way bank conflict"));                 // beside a line of the source
  EXPECT_THAT(html, HasSubstr("s_b float16 [32, 128]"));              // in the nest
  EXPECT_THAT(html, HasSubstr("kernel ampere_matmul_v1("));           // the IR
  EXPECT_THAT(html, HasSubstr(".visible .entry ampere_matmul_v1("));  // the PTX
  EXPECT_EQ(count(html, "<svg "), 3u);                                // roofline, tuning space, timeline
  // Self-contained: nothing is fetched.
  for (const char* outside : {"src=", "@import", "url(http", "<link", "href=\"http"})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
}

TEST(ExplainPage, MarksWhatBelongsTogetherAndFitsAPhone) {
  const testing::Page page("explain blackwell_matmul_v2");
  const std::string html = page.html();
  // A line of the kernel that has IR and PTX: the multiplication.
  const size_t op = html.find("tcgen05_mma ");
  ASSERT_NE(op, std::string::npos);
  const size_t at = html.rfind("data-k=\"", op) + 8;
  const std::string key = html.substr(at, html.find('"', at) - at);
  const auto checked = page.check("line=" + key + "&check", 500);
  if (!checked) IMBREX_SKIP(browser);
  const nlohmann::json& c = *checked;
  ASSERT_EQ(c["lines"].size(), 3u) << c;
  for (int listing = 0; listing < 3; ++listing) EXPECT_GT(c["lines"][listing], 50) << c;
  EXPECT_EQ(c["marked"][0], 1) << c;
  EXPECT_GE(c["marked"][1], 1) << c;
  EXPECT_GE(c["marked"][2], 4) << c;
  EXPECT_EQ(c["broken"], 0) << "links that lead nowhere";
  EXPECT_EQ(c["outside"], 0);
  EXPECT_LE(c["width"], c["window"]) << "wider than the screen";
}

}  // namespace
}  // namespace imbrex
