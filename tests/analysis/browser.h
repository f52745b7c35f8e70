// SPDX-License-Identifier: Apache-2.0
// Pages of the command in a headless browser.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

namespace imbrex::testing {

inline std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[65536];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  return text;
}

/// A page that the command has written; gone with the object.
class Page {
 public:
  /// `imbrex ARGUMENTS -o PAGE`.
  explicit Page(const std::string& arguments) {
    static int count = 0;
    folder_ = std::filesystem::temp_directory_path() /
              ("imbrex-page-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "page.html").string();
    const std::string command = std::string(IMBREX_TOOL) + " " + arguments + " -o " + path_ + " >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  ~Page() { std::filesystem::remove_all(folder_); }

  std::string html() const {
    std::ifstream file(path_);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  /// What the page's script prints with `#...check`; nothing where there is no browser.
  std::optional<nlohmann::json> check(const std::string& fragment, int width = 1200) const {
    std::string browser =
        output_of("command -v chromium || command -v chromium-browser || command -v google-chrome");
    if (browser.empty()) return std::nullopt;
    browser.pop_back();
    const std::string dom =
        output_of(browser + " --headless --no-sandbox --disable-gpu --window-size=" + std::to_string(width) +
                  ",900 --user-data-dir=" + folder_.string() + "/profile --dump-dom 'file://" + path_ + "#" +
                  fragment + "' 2>/dev/null");
    const size_t start = dom.find("<pre id=\"check\">");
    if (start == std::string::npos) {
      ADD_FAILURE() << "the page printed nothing: " << dom.substr(0, 500);
      return nlohmann::json::object();
    }
    const size_t json = dom.find('>', start) + 1;
    return nlohmann::json::parse(dom.substr(json, dom.find("</pre>", json) - json));
  }

 private:
  std::filesystem::path folder_;
  std::string path_;
};

}  // namespace imbrex::testing
