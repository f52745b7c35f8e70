// SPDX-License-Identifier: Apache-2.0
// `imbrex banks`: which lane meets which bank of shared memory in which cycle, for a stride or a tile access
// typed in, with and without a swizzle; and where in a kernel's source conflicts cost how much.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/banks.h"
#include "kernel_study.h"
#include "subcommands.h"
#include "timeline_view.h"

namespace imbrex::command {
namespace {

struct BanksOptions {
  KernelChoice choice;
  bool no_run = false, instructions = false;
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

constexpr int64_t kMostStride = 1 << 20;

int banks(const BanksOptions& o) {
  if (o.stride < 0 || o.row_bytes < 0)
    throw LaunchError(Diagnostic{{}, "strides and rows are not negative", {}, ""});
  if (o.stride > kMostStride || o.row_bytes > kMostStride)
    throw LaunchError(Diagnostic{
        {}, fmt::format("strides and rows are at most {}: shared memory is small", kMostStride), {}, ""});
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
  fmt::print("{} bytes per lane, lane i at byte i * {}\n", o.bytes,
             o.row_bytes > 0 ? o.row_bytes : o.stride * o.bytes);
  fmt::print("\nas written: {}\n", verdict(plain));
  draw(plain, o.bytes);
  if (is_swizzled) {
    fmt::print("\nswizzled {}: {}\n", o.swizzle, verdict(after));
    draw(after, o.bytes);
  }
  return 0;
}

// ---- of a kernel

using Json = nlohmann::ordered_json;

Json to_json(const LineBanks& b) {
  return {{"file", b.file},   {"line", b.line},         {"access", b.writes ? "write" : "read"},
          {"bytes", b.bytes}, {"accesses", b.accesses}, {"wavefronts", b.wavefronts},
          {"ideal", b.ideal}, {"degree", b.degree}};
}

Json to_json(const std::vector<LineBanks>& lines) {
  Json out = Json::array();
  for (const LineBanks& line : lines) out.push_back(to_json(line));
  return out;
}

Json to_json(const vgpu::BankUse& use) {
  return {{"ptx_line", use.place.ptx_line},
          {"ptx", use.place.ptx},
          {"line", use.place.line},
          {"access", use.writes ? "write" : "read"},
          {"bytes", use.bytes},
          {"accesses", use.accesses},
          {"wavefronts", use.wavefronts},
          {"ideal", use.ideal},
          {"degree", use.degree}};
}

std::string degree_text(int degree) { return degree == 1 ? "none" : fmt::format("{}-way", degree); }

void print_lines(const std::vector<LineBanks>& lines) {
  size_t width = 6;
  for (const LineBanks& b : lines) width = std::max(width, place_text(b.file, b.line).size());
  fmt::print("  {:{}} {:6} {:>5} {:>12} {:>12} {:>12} {:>8}\n", "line", width, "access", "bytes",
             "instructions", "cycles", "ideal", "conflict");
  LineBanks sum;
  for (const LineBanks& b : lines) {
    fmt::print("  {:{}} {:6} {:>5} {:>12} {:>12} {:>12} {:>8}  {}\n", place_text(b.file, b.line), width,
               b.writes ? "write" : "read", b.bytes, b.accesses, b.wavefronts, b.ideal, degree_text(b.degree),
               trimmed_line(b.file, b.line));
    sum.accesses += b.accesses;
    sum.wavefronts += b.wavefronts;
    sum.ideal += b.ideal;
  }
  fmt::print("  {:{}} {:6} {:>5} {:>12} {:>12} {:>12}\n\n", "all", width, "", "", sum.accesses,
             sum.wavefronts, sum.ideal);
  if (sum.wavefronts == sum.ideal)
    fmt::print("no conflicts\n");
  else
    fmt::print("conflicts cost {} of {} cycles of shared memory, {:.1f} %\n", sum.wavefronts - sum.ideal,
               sum.wavefronts,
               100.0 * static_cast<double>(sum.wavefronts - sum.ideal) / static_cast<double>(sum.wavefronts));
}

int kernel_banks(const BanksOptions& o) {
  if (o.stride > 0 || o.row_bytes > 0)
    throw LaunchError(Diagnostic{
        {}, "a KERNEL and a typed pattern at once", {}, "give either KERNEL or --stride or --row-bytes"});
  const KernelTraffic counted = counted_traffic(o.choice);
  const std::vector<LineBanks> predicted = banks_by_line(counted.banks);
  std::vector<vgpu::BankUse> instructions;
  std::vector<LineBanks> lines = predicted;
  if (!o.no_run) {
    instructions = study_run(o.choice, gpu_model_for(o.choice.kernel().target), false).report.banks;
    lines = banks_by_line(instructions);
  }
  const bool agree = lines == predicted;
  if (o.json) {
    Json out = {{"kernel", o.choice.kernel().description.name},
                {"sizes", o.choice.sizes()},
                {"config", o.choice.kernel().space.to_string(o.choice.configuration())},
                {"predicted", to_json(predicted)}};
    if (!o.no_run) {
      out["counted"] = to_json(lines);
      out["agree"] = agree;
      out["instructions"] = Json::array();
      for (const vgpu::BankUse& use : instructions) out["instructions"].push_back(to_json(use));
    }
    fmt::print("{}\n", out.dump(2));
    return agree ? 0 : 1;
  }
  fmt::print("{} {}  {}\n\n", o.choice.kernel().description.name, sizes_text(o.choice),
             o.choice.kernel().space.to_string(o.choice.configuration()));
  if (lines.empty()) {
    fmt::print("no thread reads or writes shared memory\n");
    return agree ? 0 : 1;
  }
  print_lines(lines);
  if (o.instructions) {
    fmt::print("\n  {:>8} {:>12} {:>12} {:>12} {:>8}\n", "PTX line", "times", "cycles", "ideal", "conflict");
    for (const vgpu::BankUse& use : instructions)
      fmt::print("  {:>8} {:>12} {:>12} {:>12} {:>8}  {}\n", use.place.ptx_line, use.accesses, use.wavefronts,
                 use.ideal, degree_text(use.degree), use.place.ptx);
  }
  if (o.no_run)
    fmt::print("predicted from the layouts{}\n",
               counted.is_exact() ? "" : ", a lower bound: " + counted.unknown);
  else if (agree)
    fmt::print("counted by the virtual GPU; predicted from the layouts: the same\n");
  else {
    fmt::print("counted by the virtual GPU; the prediction from the layouts differs{}:\n\n",
               counted.is_exact() ? "" : " (" + counted.unknown + ")");
    print_lines(predicted);
  }
  return agree ? 0 : 1;
}

}  // namespace

void add_banks(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<BanksOptions>();
  Subcommand* command =
      app.add_subcommand("banks",
                         "Bank conflicts of a kernel by source line, or of a shared-memory access typed in, "
                         "before and after a swizzle");
  options->choice.add_to(*command, KernelChoice::Need::kOptional);
  command->add_flag("--no-run", options->no_run,
                    "with KERNEL: predict from the layouts alone, for sizes that take too long to run");
  command->add_flag("--instructions", options->instructions, "with KERNEL: every PTX instruction too");
  Option* stride = command->add_option("--stride", options->stride, "lane i accesses element i * STRIDE");
  Option* row = command->add_option("--row-bytes", options->row_bytes,
                                    "lane i accesses the start of row i of so many bytes");
  stride->excludes(row);
  command
      ->add_option("--bytes", options->bytes,
                   "bytes per lane: 1, 2, 4, 8, 16 (16 is also a row of ldmatrix and stmatrix)")
      ->capture_default_str();
  command->add_option("--swizzle", options->swizzle, "compare with this swizzle")
      ->one_of(swizzle_names())
      ->capture_default_str();
  command->add_flag("--json", options->json, "print JSON");
  command->callback([&chosen, command, options] {
    chosen = [command, options] {
      if (options->choice.is_given()) {
        refuse_given(*command, {"--bytes", "--swizzle"}, "goes with --stride or --row-bytes");
        return kernel_banks(*options);
      }
      refuse_given(*command, {"--no-run", "--instructions"}, "goes with a KERNEL");
      options->choice.expect_nothing_given();
      if (command->count("--stride") + command->count("--row-bytes") == 0)
        throw LaunchError(Diagnostic{{}, "nothing to look at", {}, "give a KERNEL, --stride or --row-bytes"});
      return banks(*options);
    };
  });
}

}  // namespace imbrex::command
