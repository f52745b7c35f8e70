// SPDX-License-Identifier: Apache-2.0
// `imbrex demo`: every registered kernel once, as a table.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "imbrex/error.h"
#include "subcommands.h"

namespace imbrex::command {
namespace {

/// 1234567 -> "1.23 M".
std::string short_number(double value, const char* unit = "") {
  const char* prefix[] = {"", "k", "M", "G", "T"};
  int i = 0;
  while (value >= 1000 && i < 4) value /= 1000, ++i;
  if (value == 0) return "-";
  return fmt::format("{:.{}f} {}{}", value,
                     i == 0 || value >= 100 ? 0
                     : value >= 10          ? 1
                                            : 2,
                     prefix[i], unit);
}

struct Palette {
  const char *good = "", *bad = "", *dim = "", *off = "";
};

/// Runs one kernel on one device and prints its row. Returns whether it verified with nothing found.
bool show(const RegisteredKernel& kernel, const Device& device, const Palette& palette) {
  std::map<std::string, int64_t> sizes;
  std::vector<std::string> shape;
  for (const SizeOption& size : kernel.description.sizes) {
    sizes[size.name] = size.otherwise;
    shape.push_back(std::to_string(size.otherwise));
  }
  Case c(Case::Mode::kRun, device, sizes, 1);
  kernel.run(c, device, kernel.space.configuration(0));
  const vgpu::Statistics& s = c.report.virtual_report.statistics;
  const bool good = c.verified() && c.report.clean();
  const size_t findings = c.report.virtual_report.findings.size();
  fmt::print("{:<22} {:<14} {}{:<9}{} {:>9.1e} ", kernel.description.name,
             fmt::format("{}", fmt::join(shape, "×")), good ? palette.good : palette.bad,
             c.verified() ? "verified" : "WRONG", palette.off, c.max_rel_err());
  if (device.is_virtual()) {
    fmt::print("{}{:>8}{} {:>9} {:>9} {:>9} {:>9} {:>9}", findings == 0 ? "" : palette.bad, findings,
               palette.off, short_number(static_cast<double>(s.instructions)),
               short_number(static_cast<double>(s.global_bytes_read + s.global_bytes_written), "B"),
               short_number(static_cast<double>(s.cp_async_bytes), "B"),
               short_number(static_cast<double>(s.tma_bytes_loaded + s.tma_bytes_stored), "B"),
               short_number(static_cast<double>(s.tensor_flops)));
  }
  fmt::print(" {:>8.2f} ms\n", c.report.milliseconds);
  if (findings > 0) fmt::print("{}\n", c.report.virtual_report.format());
  return good;
}

int demo() {
  Palette palette;
  if (isatty(STDOUT_FILENO) != 0) palette = {"\033[32m", "\033[31m", "\033[2m", "\033[0m"};
  bool all_good = true;
  auto header = [&](const std::string& device, bool is_virtual) {
    fmt::print("\n{}\n{}{:<22} {:<14} {:<9} {:>9} {}{:>11}{}\n", device, palette.dim, "kernel", "size",
               "result", "rel. err.",
               is_virtual ? fmt::format("{:>8} {:>9} {:>9} {:>9} {:>9} {:>9}", "findings", "instr.", "ld/st",
                                        "cp.async", "TMA", "MMA FLOP")
                          : "",
               "time", palette.off);
  };
  header("Virtual GPU (PTX on this CPU, every access checked)", true);
  for (const auto& [name, kernel] : registered_kernels()) {
    vgpu::Options options;
    options.target = kernel.target;
    all_good = show(kernel, Device::virtual_gpu(options), palette) && all_good;
  }
  std::string why_not;
  if (!Device::has_cuda(&why_not)) {
    fmt::print("\n{}No CUDA GPU: {}.{}\n", palette.dim, why_not, palette.off);
    return all_good ? 0 : 1;
  }
  Device gpu = Device::cuda();
  header(gpu.name(), false);
  for (const auto& [name, kernel] : registered_kernels()) {
    if (!gpu.can_run(kernel.target)) continue;
    all_good = show(kernel, gpu, palette) && all_good;
  }
  return all_good ? 0 : 1;
}

}  // namespace

void add_demo(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand(
      "demo", "Run every kernel once, on the virtual GPU and on a CUDA GPU if there is one");
  command->callback([&chosen] { chosen = demo; });
}

}  // namespace imbrex::command
