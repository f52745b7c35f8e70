// SPDX-License-Identifier: Apache-2.0
// `imbrex coalescing`: how many 32-byte sectors of global memory each request of a kernel touches, by source line;
// or what a warp's access typed in touches.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "coalescing_view.h"
#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/sectors.h"
#include "kernel_study.h"
#include "subcommands.h"

namespace imbrex::command {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  KernelChoice choice;
  bool instructions = false, atomic = false, json = false;
  int64_t stride = 1, start = 0;  // in elements
  int bytes = 4, lanes = 32;
};

int kernel_coalescing(const Options& o) {
  const RegisteredKernel& kernel = o.choice.kernel();
  const std::vector<vgpu::SectorUse> uses =
      study_run(o.choice, gpu_model_for(kernel.target), false).report.sectors;
  const std::string config = kernel.space.to_string(o.choice.configuration());
  if (o.json) {
    Json out = {{"kernel", kernel.description.name}, {"sizes", o.choice.sizes()}, {"config", config}};
    out.update(coalescing_json(uses));
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{} {}  {}\n\n{}", kernel.description.name, sizes_text(o.choice), config,
               coalescing_text(uses, o.instructions));
  }
  return 0;
}

int typed_coalescing(const Options& o) {
  constexpr int64_t kMost = 1 << 20;
  if (o.stride < 0 || o.stride > kMost || o.start < 0 || o.start > kMost)
    throw LaunchError(Diagnostic{{}, fmt::format("strides and starts are 0 to {}", kMost), {}, ""});
  WarpAccess access{.addresses = {}, .bytes = o.bytes};
  for (int64_t lane = 0; lane < o.lanes; ++lane)
    access.addresses.push_back((o.start + lane * o.stride) * o.bytes);
  const SectorReport report =
      sector_report(access, o.atomic ? SectorSharing::kByTurns : SectorSharing::kTogether);
  if (o.json) {
    fmt::print("{}\n", Json{{"bytes", o.bytes},
                            {"lanes", report.lanes},
                            {"sectors", report.sectors},
                            {"ideal", report.ideal},
                            {"bytes_asked", report.bytes}}
                           .dump());
    return 0;
  }
  fmt::print("{} lanes, {} bytes each, lane i at byte {} + i * {}\n", o.lanes, o.bytes, o.start * o.bytes,
             o.stride * o.bytes);
  fmt::print("{} sector{} of {} bytes where {} would do: {:.0f} % of the bytes moved were asked for\n",
             report.sectors, report.sectors == 1 ? "" : "s", kSectorBytes, report.ideal,
             std::min(100.0, 100.0 * static_cast<double>(report.bytes) / (report.sectors * kSectorBytes)));
  std::map<int64_t, int> lanes_of;  // by sector
  for (const int64_t address : access.addresses) ++lanes_of[address / kSectorBytes];
  fmt::print("  sector at byte  lanes\n");
  for (const auto& [sector, lanes] : lanes_of) fmt::print("  {:>14}  {:>5}\n", sector * kSectorBytes, lanes);
  return 0;
}

}  // namespace

void add_coalescing(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<Options>();
  Subcommand* command = app.add_subcommand(
      "coalescing",
      "Sectors of global memory per request: of a kernel by source line, or of an access typed in");
  options->choice.add_to(*command, KernelChoice::Need::kOptional);
  command->add_flag("--instructions", options->instructions, "with KERNEL: every PTX instruction too");
  command->add_option("--stride", options->stride, "lane i accesses element START + i * STRIDE")
      ->capture_default_str();
  command->add_option("--start", options->start, "the first lane's element")->capture_default_str();
  command->add_option("--bytes", options->bytes, "bytes per lane: 1, 2, 4, 8, 16 or 32")
      ->capture_default_str();
  command->add_option("--lanes", options->lanes, "lanes that take part")
      ->between(1, 32)
      ->capture_default_str();
  command->add_flag("--atomic", options->atomic, "the access is an atomic operation or a reduction");
  command->add_flag("--json", options->json, "print JSON");
  command->footer(
      "A request is one instruction of a warp; it moves whole sectors of 32 bytes, and lanes whose atomics "
      "want the "
      "same word\n"
      "take turns, each of which moves the sector. The counts are the virtual GPU's, and those that ncu "
      "calls\n"
      "l1tex__t_requests_pipe_lsu_mem_global_op_* and l1tex__t_sectors_pipe_lsu_mem_global_op_*.");
  command->callback([&chosen, command, options] {
    chosen = [command, options] {
      if (options->choice.is_given()) {
        refuse_given(*command, {"--stride", "--start", "--bytes", "--lanes", "--atomic"},
                     "is of an access typed in, KERNEL has its own");
        return kernel_coalescing(*options);
      }
      refuse_given(*command, {"--instructions"}, "goes with a KERNEL");
      options->choice.expect_nothing_given();
      if (command->count("--stride") + command->count("--start") + command->count("--bytes") +
              command->count("--lanes") ==
          0)
        throw LaunchError(Diagnostic{{}, "nothing to look at", {}, "give a KERNEL, or --stride and --bytes"});
      return typed_coalescing(*options);
    };
  });
}

}  // namespace imbrex::command
