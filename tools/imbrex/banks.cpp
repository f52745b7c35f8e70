// SPDX-License-Identifier: Apache-2.0
// `imbrex banks`: which lane meets which bank of shared memory in which cycle, for a stride or a tile access
// typed in, with and without a swizzle.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "imbrex/banks.h"
#include "imbrex/error.h"
#include "subcommands.h"

namespace imbrex::command {
namespace {

struct BanksOptions {
  int64_t stride = 0;  // in elements of `bytes`
  int64_t row_bytes = 0;
  int bytes = 4;
  std::string swizzle = "none";
  bool json = false;
};

/// Lane i accesses element i * stride; or, with rows, lane i accesses the start of row i.
WarpAccess pattern(const BanksOptions& o, const std::string& swizzle) {
  WarpAccess access{.addresses = {}, .bytes = o.bytes};
  const int64_t step = o.row_bytes > 0 ? o.row_bytes : o.stride * o.bytes;
  for (int lane = 0; lane < 32; ++lane) access.addresses.push_back(swizzled_address(swizzle, lane * step));
  return access;
}

void draw(const BankReport& report, int bytes) {
  fmt::print("  cycle  lanes served, each under the first of its banks\n");
  for (int cycle = 0; cycle < report.wavefronts && cycle < 32; ++cycle) {
    std::vector<std::string> cells(kBanks, " .");
    for (size_t lane = 0; lane < report.cycle.size(); ++lane)
      if (report.cycle[lane] == cycle)
        for (int word = 0; word < std::max(1, bytes / kBankBytes); ++word)
          cells[static_cast<size_t>((report.bank[lane] + word) % kBanks)] = fmt::format("{:2}", lane);
    fmt::print("  {:5}  ", cycle);
    for (const std::string& cell : cells) fmt::print("{} ", cell);
    fmt::print("\n");
  }
}

nlohmann::ordered_json to_json(const BankReport& report) {
  return {{"phases", report.phases},
          {"wavefronts", report.wavefronts},
          {"conflicts", report.conflicts()},
          {"degree", report.degree},
          {"bank", report.bank},
          {"cycle", report.cycle}};
}

int banks(const BanksOptions& o) {
  if (o.stride < 0 || o.row_bytes < 0)
    throw LaunchError(Diagnostic{{}, "strides and rows are not negative", {}, ""});
  const BankReport plain = bank_report(pattern(o, "none"));
  const BankReport after = bank_report(pattern(o, o.swizzle));
  const bool is_swizzled = o.swizzle != "none";
  if (o.json) {
    nlohmann::ordered_json out = {{"bytes", o.bytes}, {"plain", to_json(plain)}};
    if (is_swizzled) out["swizzled"] = to_json(after);
    fmt::print("{}\n", out.dump());
    return 0;
  }
  auto verdict = [](const BankReport& r) {
    return fmt::format("{} cycle{} where {} would do, {}", r.wavefronts, r.wavefronts == 1 ? "" : "s",
                       r.phases, r.degree == 1 ? "no conflict" : fmt::format("{}-way conflict", r.degree));
  };
  fmt::print("{} bytes a lane, lane i at byte i * {}\n", o.bytes,
             o.row_bytes > 0 ? o.row_bytes : o.stride * o.bytes);
  fmt::print("\nas written: {}\n", verdict(plain));
  draw(plain, o.bytes);
  if (is_swizzled) {
    fmt::print("\nswizzled {}: {}\n", o.swizzle, verdict(after));
    draw(after, o.bytes);
  }
  return 0;
}

}  // namespace

void add_banks(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<BanksOptions>();
  CLI::App* command =
      app.add_subcommand("banks", "Bank conflicts of a shared-memory access, before and after a swizzle");
  CLI::Option* stride =
      command->add_option("--stride", options->stride, "lane i accesses element i * STRIDE");
  CLI::Option* row = command->add_option("--row-bytes", options->row_bytes,
                                         "lane i accesses the start of row i of so many bytes");
  stride->excludes(row);
  command
      ->add_option("--bytes", options->bytes,
                   "bytes a lane: 1, 2, 4, 8, 16 (16 is also a row of ldmatrix and stmatrix)")
      ->capture_default_str();
  command->add_option("--swizzle", options->swizzle, "compare with this swizzle")
      ->check(CLI::IsMember(swizzle_names()))
      ->capture_default_str();
  command->add_flag("--json", options->json, "print JSON");
  command->callback([&chosen, options] { chosen = [options] { return banks(*options); }; });
}

}  // namespace imbrex::command
