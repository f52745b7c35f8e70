// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/cache.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <atomic>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "imbrex/core/error.h"
#include "imbrex/core/nearest.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/runtime/tuner.h"
#include "subcommands.h"

namespace imbrex {
// Of the kernel library, which a program that links the command need not link.
[[gnu::weak]] std::vector<MatmulCode> matmul_codes();
}  // namespace imbrex

namespace imbrex::command {
namespace {

/// 1234567 -> "1.2 MiB".
std::string size_text(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  const char* unit = "KiB";
  if (value >= 1024) value /= 1024, unit = "MiB";
  return fmt::format("{:.1f} {}", value, unit);
}

void check_kind(const std::string& kind) {
  const std::vector<std::string> kinds = Cache::shared().kinds();
  if (kind.empty() || std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
  const std::string near = nearest_word(kind, kinds);
  throw LaunchError(
      Diagnostic{{},
                 fmt::format("the cache holds no '{}'", kind),
                 {},
                 near.empty() ? "see: imbrex cache list" : fmt::format("did you mean '{}'?", near)});
}

int list(const std::string& kind, bool json) {
  check_kind(kind);
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const std::string& each : Cache::shared().kinds()) {
    if (!kind.empty() && each != kind) continue;
    for (const CacheEntry& entry : Cache::shared().list(each)) {
      nlohmann::ordered_json parts;
      std::string line;
      for (const auto& [name, value] : entry.key.parts) {
        parts[name] = value;
        line += fmt::format(" {}={}", name, value.size() > 32 ? value.substr(0, 12) + "..." : value);
      }
      if (json)
        out.push_back({{"kind", each}, {"bytes", entry.bytes}, {"used", entry.used}, {"key", parts}});
      else
        fmt::print("{:%Y-%m-%d %H:%M}  {:>10}  {:<8}{}\n",
                   fmt::localtime(static_cast<std::time_t>(entry.used)), size_text(entry.bytes), each, line);
    }
  }
  if (json) fmt::print("{}\n", out.dump(2));
  return 0;
}

int size() {
  int64_t total = 0;
  for (const std::string& kind : Cache::shared().kinds()) {
    int64_t bytes = 0;
    const std::vector<CacheEntry> entries = Cache::shared().list(kind);
    for (const CacheEntry& entry : entries) bytes += entry.bytes;
    if (!entries.empty()) fmt::print("{:<10} {:>6} entries {:>12}\n", kind, entries.size(), size_text(bytes));
    total += bytes;
  }
  fmt::print("{:<10} {:>27}, of at most {}\n", "all", size_text(total),
             size_text(Cache::shared().max_bytes()));
  return 0;
}

/// Makes the machine code of the library's products, in `folder` to be shipped, or in the cache.
int fill(const std::string& folder, int64_t jobs, const std::string& only) {
  if (matmul_codes == nullptr)
    throw LaunchError(Diagnostic{
        {}, "this program has no kernel library to fill the cache with", {}, "link imbrex::kernels too"});
  std::vector<MatmulCode> codes = matmul_codes();
  std::erase_if(codes, [&](const MatmulCode& code) { return !code.name.starts_with(only); });
  if (codes.empty())
    throw LaunchError(Diagnostic{{},
                                 fmt::format("no product's name begins with '{}'", only),
                                 {},
                                 "they begin with bfloat16, float16 or float8_e4m3"});
  Cache shipped(folder, INT64_MAX);
  std::atomic<size_t> next = 0;
  std::mutex turn;
  std::exception_ptr failure;
  std::vector<std::string> left_out;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < jobs; ++i)
    threads.emplace_back([&] {
      for (size_t at; (at = next++) < codes.size();) try {
          codes[at].ship(folder.empty() ? Cache::shared() : shipped);
        } catch (const CompileError& error) {
          // A tile that spills with one type or order of operands: a call finds that out, too, and takes the next tile.
          const std::lock_guard lock(turn);
          left_out.push_back(fmt::format("{}: {}", codes[at].name, error.diagnostics().front().message));
        } catch (const std::exception& error) {  // the others are made nevertheless
          const std::lock_guard lock(turn);
          fmt::print(stderr, "{}:\n{}\n", codes[at].name, error.what());
          failure = std::current_exception();
        }
    });
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  int64_t bytes = 0;
  for (const CacheEntry& entry : (folder.empty() ? Cache::shared() : shipped).list("cubin"))
    bytes += entry.bytes;
  fmt::print("{} kernels of matmul; {} of machine code in {}\n", codes.size() - left_out.size(),
             size_text(bytes), folder.empty() ? Cache::shared().directory() : folder);
  for (const std::string& each : left_out) fmt::print("left out: {}\n", each);
  // A few are expected; all of them would be a compiler that does not work.
  if (left_out.size() * 20 > codes.size())
    throw CompileError(Diagnostic{
        {}, fmt::format("{} of {} kernels were not made", left_out.size(), codes.size()), {}, "see above"});
  return 0;
}

}  // namespace

void add_cache(Subcommand& app, Action& chosen) {
  Subcommand* command = app.add_subcommand("cache", "Look at and clean what is kept between runs");
  command->require_subcommand(1);
  command->footer(
      "The folder is $IMBREX_CACHE_DIR, else $XDG_CACHE_HOME/imbrex, else ~/.cache/imbrex; set but empty, "
      "nothing is "
      "kept.\nIt holds at most $IMBREX_CACHE_MB MiB (1024); the least recently used go first.");
  auto kind = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);

  command->add_subcommand("path", "print the folder")->callback([&chosen] {
    chosen = [] {
      fmt::print("{}\n", Cache::shared().directory());
      return 0;
    };
  });
  Subcommand* lister = command->add_subcommand("list", "list the entries, the most recently used first");
  lister->add_option("KIND", *kind, "only entries of this kind");
  lister->add_flag("--json", *json, "print JSON");
  lister->callback([&chosen, kind, json] { chosen = [=] { return list(*kind, *json); }; });
  auto folder = std::make_shared<std::string>(), only = std::make_shared<std::string>();
  auto jobs = std::make_shared<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  Subcommand* filler = command->add_subcommand(
      "fill", "assemble the library's products ahead, so that no first call of theirs waits for ptxas");
  filler->add_option("FOLDER", *folder,
                     "make machine code to be shipped: programs find it by $IMBREX_CODE_DIR, or as "
                     "share/imbrex/code where Imbrex is installed; else it goes into the cache");
  filler->add_option("--only", *only, "products whose names begin so: bfloat16, \"bfloat16 bias\", ...");
  filler->add_option("--jobs", *jobs, "at once")->between(1, 256);
  filler->callback([&chosen, folder, jobs, only] { chosen = [=] { return fill(*folder, *jobs, *only); }; });
  command->add_subcommand("size", "how much is kept")->callback([&chosen] { chosen = size; });
  auto choice = std::make_shared<KernelChoice>();
  Subcommand* explainer =
      command->add_subcommand("explain", "why a kernel's tuning and machine code are found, or not");
  choice->add_to(*explainer);
  explainer->callback([&chosen, choice] {
    chosen = [choice] {
      fmt::print("{}\n", explain_cache(choice->kernel(), choice->sizes(), choice->configuration()));
      return 0;
    };
  });
  Subcommand* cleaner = command->add_subcommand("clear", "remove the entries");
  cleaner->add_option("KIND", *kind, "only entries of this kind");
  cleaner->callback([&chosen, kind] {
    chosen = [kind] {
      check_kind(*kind);
      fmt::print("freed {}\n", size_text(Cache::shared().clear(*kind)));
      return 0;
    };
  });
}

}  // namespace imbrex::command
