// SPDX-License-Identifier: Apache-2.0
// `imbrex roofline`: the roofs of a GPU, and where a matrix product or a kernel stands under them at every
// level of the memory hierarchy. A kernel's traffic is counted from its IR, and compared with what the
// virtual GPU sees move.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/tiling.h"
#include "kernel_study.h"
#include "matmul_options.h"
#include "roofline_view.h"
#include "subcommands.h"
#include "svg.h"

namespace imbrex::command {
namespace {

struct RooflineOptions {
  KernelChoice choice;
  GpuChoice gpu;
  MatmulTile tile;
  std::string dtype = "float16";
  std::string svg;
  bool json = false, no_run = false;
};

/// A kernel under the roofs: its traffic counted from the IR, and compared with what a run moves.
struct KernelRoofline {
  Roofline roofline;
  KernelTraffic counted;
  std::optional<TrafficCounts> run;  // what the virtual GPU saw
};

KernelRoofline kernel_roofline(const RooflineOptions& options, const GpuModel& gpu) {
  KernelRoofline result;
  result.counted = counted_traffic(options.choice);
  double flops = static_cast<double>(result.counted.counts.tensor_flops);
  const bool has_tensor_work = flops > 0;
  if (!options.no_run) {
    const vgpu::Statistics s = study_run(options.choice, gpu, false).report.statistics;
    result.run = counts_of(s);
    if (!has_tensor_work) flops = static_cast<double>(s.lane_instructions);
  } else if (!has_tensor_work) {
    throw LaunchError(
        Diagnostic{{},
                   fmt::format("{} has no tensor-core work whose operations are known without a run",
                               options.choice.kernel().description.name),
                   {},
                   "leave out --no-run"});
  }
  result.roofline = roofline(gpu, result.counted.operands, flops, result.counted.levels());
  return result;
}

/// How the two counts compare, in words.
std::string comparison(const KernelRoofline& k) {
  std::string text = "\nbytes counted from the IR";
  if (!k.counted.is_exact()) text += fmt::format(" (a lower bound: {})", k.counted.unknown);
  if (!k.run) return text + "\n";
  const std::vector<std::string> different = differences(k.counted.counts, *k.run);
  if (different.empty()) return text + "; the virtual GPU moved exactly these\n";
  return text + fmt::format("; the virtual GPU moved others:\n  {}\n", fmt::join(different, "\n  "));
}

nlohmann::ordered_json counts_json(const TrafficCounts& c) {
  return {{"global_bytes_read", c.global_bytes_read},
          {"global_bytes_written", c.global_bytes_written},
          {"shared_bytes_read", c.shared_bytes_read},
          {"shared_bytes_written", c.shared_bytes_written},
          {"cp_async_bytes", c.cp_async_bytes},
          {"tma_bytes_loaded", c.tma_bytes_loaded},
          {"tma_bytes_repeated", c.tma_bytes_repeated},
          {"tma_bytes_stored", c.tma_bytes_stored},
          {"tensor_memory_bytes", c.tensor_memory_bytes},
          {"operand_bytes", c.operand_bytes},
          {"tensor_flops", c.tensor_flops}};
}

int roofline_command(const RooflineOptions& options) {
  const bool is_kernel = options.choice.is_given();
  const GpuModel gpu = is_kernel ? options.gpu.gpu_for(options.choice.kernel()) : options.gpu.gpu("h200");
  Roofline r;
  std::optional<KernelRoofline> of_kernel;
  std::string title;
  if (is_kernel) {
    const RegisteredKernel& kernel = options.choice.kernel();
    of_kernel = kernel_roofline(options, gpu);
    r = of_kernel->roofline;
    title = fmt::format("{} {}  {}", kernel.description.name, sizes_text(options.choice),
                        kernel.space.to_string(options.choice.configuration()));
  } else {
    MatmulTile tile = options.tile;
    tile.operands = dtype_named(options.dtype);
    tile.use_instructions_of(gpu.target);
    MatmulShape shape;
    shape.m = options.choice.given("m", shape.m);
    shape.n = options.choice.given("n", shape.n);
    shape.k = options.choice.given("k", shape.k);
    r = roofline(gpu, tile.operands, shape.flops(), matmul_traffic(shape, tile));
    title = fmt::format("matrix product {} x {} x {}, tile {} x {} x {}", shape.m, shape.n, shape.k,
                        tile.block_m, tile.block_n, tile.block_k);
  }
  if (!options.svg.empty()) write_file(options.svg, roofline_svg(gpu, r, title));
  if (options.json) {
    nlohmann::ordered_json out = roofline_json(r);
    if (of_kernel) {
      out["exact"] = of_kernel->counted.is_exact();
      out["counted"] = counts_json(of_kernel->counted.counts);
      if (of_kernel->run) out["run"] = counts_json(*of_kernel->run);
    }
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{}{}", roofline_text(gpu, r, title), of_kernel ? comparison(*of_kernel) : "");
  }
  return 0;
}

}  // namespace

void add_roofline(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<RooflineOptions>();
  Subcommand* command = app.add_subcommand(
      "roofline",
      "Where a kernel, or a matrix product cut into tiles, stands under a GPU's roofs at every memory level");
  options->choice.add_to(*command, KernelChoice::Need::kOptional);
  options->gpu.add_to(*command);
  add_tile_options(*command, options->tile, options->dtype);
  command->add_option("--svg", options->svg, "draw it into this file");
  command->add_flag("--no-run", options->no_run,
                    "with KERNEL: count from the IR alone, for sizes that take too long to run");
  command->add_flag("--json", options->json, "print JSON");
  command->callback([&chosen, command, options] {
    chosen = [command, options] {
      if (options->choice.is_given()) {
        refuse_given(*command, kTileOptions, "is of a tile typed in, KERNEL has its own");
      } else {
        refuse_given(*command, {"--no-run"}, "goes with a KERNEL");
        options->choice.expect_nothing_given({"m", "n", "k"});
      }
      return roofline_command(*options);
    };
  });
}

}  // namespace imbrex::command
