// SPDX-License-Identifier: Apache-2.0
// `imbrex tile`: does a tile fit, how many CTAs does an SM hold, which neighbours fit. For a kernel's whole
// tuning space, or for the tile of a matrix product typed in.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gpu_choice.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/tiling.h"
#include "imbrex/runtime/compile.h"
#include "matmul_options.h"
#include "subcommands.h"
#include "svg.h"
#include "tile_view.h"

namespace imbrex::command {
namespace {

using Json = nlohmann::ordered_json;

struct TileOptions {
  KernelChoice choice;
  GpuChoice gpu;
  MatmulTile tile;
  std::string dtype = "float16";
  std::string svg;
  bool all = false, json = false, ptxas = false;
};

Json to_json(const Occupancy& occupancy) {
  Json uses = Json::array();
  for (const ResourceUse& use : occupancy.uses)
    uses.push_back({{"resource", use.name},
                    {"taken", use.taken},
                    {"per_cta", use.per_cta},
                    {"per_sm", use.per_sm},
                    {"ctas", use.complaint.empty() ? use.ctas : 0},
                    {"complaint", use.complaint}});
  return {{"feasible", occupancy.is_feasible()},
          {"ctas_per_sm", occupancy.ctas_per_sm},
          {"warps_per_sm", occupancy.warps_per_sm},
          {"occupancy", occupancy.fraction},
          {"bound_by", occupancy.bound},
          {"resources", uses}};
}

std::string verdict(const Occupancy& o) {
  return o.is_feasible() ? fmt::format("{} CTA{} per SM, {} warps, occupancy {:.0f} %, bound by {}",
                                       o.ctas_per_sm, o.ctas_per_sm == 1 ? "" : "s", o.warps_per_sm,
                                       100 * o.fraction, fmt::join(o.bound, " and "))
                         : fmt::format("does not fit");
}

void print_occupancy(const Occupancy& occupancy) {
  fmt::print("  {:14} {:>10} {:>10} {:>10} {:>6}\n", "resource", "a CTA", "allowed", "an SM has", "CTAs");
  for (const ResourceUse& use : occupancy.uses) {
    if (use.taken == 0) continue;
    fmt::print("  {:14} {:>10} {:>10} {:>10} {:>6}{}\n", use.name, use.taken, use.per_cta, use.per_sm,
               use.complaint.empty() ? use.ctas : 0, use.complaint.empty() ? "" : "  too much");
  }
  fmt::print("{}\n", verdict(occupancy));
  if (!occupancy.is_feasible()) fmt::print("{}\n", occupancy.complaints());
}

/// The tiles one step away: one extent halved or doubled, one stage more or fewer.
std::vector<std::pair<std::string, MatmulTile>> neighbours(const MatmulTile& tile) {
  std::vector<std::pair<std::string, MatmulTile>> result;
  auto add = [&](const char* name, int64_t MatmulTile::*member, int64_t value) {
    if (value < 1) return;
    MatmulTile other = tile;
    other.*member = value;
    result.emplace_back(fmt::format("{} {} -> {}", name, tile.*member, value), other);
  };
  for (const auto& [name, member] :
       {std::pair{"block_m", &MatmulTile::block_m}, std::pair{"block_n", &MatmulTile::block_n},
        std::pair{"block_k", &MatmulTile::block_k}}) {
    add(name, member, tile.*member / 2);
    add(name, member, tile.*member * 2);
  }
  add("stages", &MatmulTile::stages, tile.stages - 1);
  add("stages", &MatmulTile::stages, tile.stages + 1);
  return result;
}

int typed_tile(const TileOptions& options) {
  MatmulTile tile = options.tile;
  tile.operands = dtype_named(options.dtype);
  const GpuModel gpu = options.gpu.gpu("a100");
  tile.use_instructions_of(gpu.target);
  const Occupancy occupancy = imbrex::occupancy(gpu.target, tile.resources());
  if (!options.svg.empty()) write_file(options.svg, tile_region_svg(gpu, tile));
  if (options.json) {
    Json near = Json::array();
    for (const auto& [change, other] : neighbours(tile)) {
      const Occupancy o = imbrex::occupancy(gpu.target, other.resources());
      near.push_back({{"change", change},
                      {"feasible", o.is_feasible()},
                      {"ctas_per_sm", o.ctas_per_sm},
                      {"shared_bytes", other.shared_bytes()},
                      {"intensity", other.intensity()}});
    }
    Json out = {{"gpu", gpu.name},
                {"shared_bytes", tile.shared_bytes()},
                {"registers_per_thread", tile.registers_per_thread()},
                {"intensity", tile.intensity()}};
    out.update(to_json(occupancy));
    out["neighbours"] = near;
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  fmt::print("tile {}x{}x{} of {}, {} stages, {} threads, on {}\n\n", tile.block_m, tile.block_n,
             tile.block_k, tile.operands.name(), tile.stages, tile.threads, gpu.title);
  fmt::print("  shared memory   ({} x {} + {} x {}) x {} bytes x {} stages = {} bytes = {:.1f} KiB\n",
             tile.block_m, tile.block_k, tile.block_k, tile.block_n, tile.operands.bits() / 8.0, tile.stages,
             tile.shared_bytes(), static_cast<double>(tile.shared_bytes()) / 1024);
  fmt::print("  registers       {} x {} / {} + 32 = about {} per thread\n", tile.block_m, tile.block_n,
             tile.threads, tile.registers_per_thread());
  fmt::print("  intensity       {:.1f} operations per byte loaded; the ridge of {} is {:.0f}\n\n",
             tile.intensity(), gpu.name, gpu.peak(tile.operands) / gpu.hbm_bytes_per_second);
  print_occupancy(occupancy);
  fmt::print("\n  {:20} {:>12} {:>10}  \n", "one step away", "shared bytes", "intensity");
  for (const auto& [change, other] : neighbours(tile))
    fmt::print("  {:20} {:>12} {:>10.1f}  {}\n", change, other.shared_bytes(), other.intensity(),
               verdict(imbrex::occupancy(gpu.target, other.resources())));
  return 0;
}

Json messages(const std::vector<Diagnostic>& diagnostics) {
  Json result = Json::array();
  for (const Diagnostic& d : diagnostics) result.push_back(d.message);
  return result;
}

int kernel_tiles(const TileOptions& options) {
  const RegisteredKernel& kernel = options.choice.kernel();
  const GpuModel gpu = options.gpu.gpu_for(kernel);
  const std::string& target = gpu.target;
  std::vector<Configuration> configurations = {options.choice.configuration()};
  if (options.all || !options.svg.empty()) configurations = kernel.space.configurations();
  std::vector<TileCandidate> candidates;
  for (const Configuration& configuration : configurations)
    candidates.push_back(compile_candidate(options.choice, configuration, options.ptxas, target));
  if (!options.svg.empty())
    write_file(options.svg, tile_space_svg(kernel.description.name, target, candidates));
  if (options.json) {
    Json out = Json::array();
    for (const TileCandidate& c : candidates) {
      Json entry = {{"kernel", kernel.description.name}, {"config", c.config}, {"gpu", gpu.name}};
      if (!c.error.empty()) {
        entry.update({{"feasible", false}, {"error", c.error}});
      } else {
        entry.update({{"target", c.resources.target},
                      {"threads", c.resources.cta.threads},
                      {"registers_per_thread", c.resources.cta.registers_per_thread},
                      {"shared_bytes", c.resources.cta.shared_bytes},
                      {"tensor_memory_columns", c.resources.cta.tensor_memory_columns}});
        if (c.assembled)
          entry.update({{"assembled_registers", c.assembled->registers_per_thread},
                        {"spill_bytes", c.assembled->spill_bytes},
                        {"slow", messages(c.assembled->slow)}});
        entry.update(to_json(c.occupancy));
      }
      out.push_back(entry);
    }
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  if (configurations.size() == 1) {
    const TileCandidate& c = candidates.front();
    if (!c.error.empty()) {
      fmt::print("{}\n", c.error);
      return 1;
    }
    fmt::print("{} {}, built for {}, on {} ({})\n\n", kernel.description.name, c.config, kernel.target,
               gpu.title, target);
    print_occupancy(c.occupancy);
    fmt::print("registers are {}: the most are live at {}:{}\n",
               c.assembled ? fmt::format("{}'s, {} were estimated", c.assembled->assembler,
                                         c.resources.cta.registers_per_thread)
                           : "an estimate",
               c.resources.pressure.file, c.resources.pressure.line);
    if (c.assembled)
      for (const Diagnostic& slow : c.assembled->slow)
        fmt::print("\na launch refuses it: {}\n", slow.format());
    return 0;
  }
  size_t width = 6;
  for (const TileCandidate& c : candidates) width = std::max(width, c.config.size());
  fmt::print("{:{}} {:>7} {:>9} {}{:>7} {:>7}  \n", "config", width, "threads", "registers",
             options.ptxas ? "  ptxas " : "", "shared", "columns");
  size_t assembled = 0, close = 0;
  for (const TileCandidate& c : candidates) {
    if (!c.error.empty()) {
      fmt::print("{:{}} {}\n", c.config, width, c.error.substr(0, c.error.find('\n')));
      continue;
    }
    const CtaResources& r = c.resources.cta;
    std::string real;
    if (c.assembled) {
      const int64_t registers = c.assembled->registers_per_thread;
      real = fmt::format("{:>7} ", registers);
      ++assembled;
      close += std::abs(r.registers_per_thread - registers) <= std::max<int64_t>(16, registers / 10);
    }
    fmt::print("{:{}} {:>7} {:>9} {}{:>7} {:>7}  {}{}\n", c.config, width, r.threads, r.registers_per_thread,
               real, r.shared_bytes, r.tensor_memory_columns, verdict(c.occupancy),
               !c.assembled || c.assembled->slow.empty() ? ""
               : c.assembled->spill_bytes > 0            ? ", spills"
                                                         : ", products serialized");
  }
  if (assembled > 0)
    fmt::print("\nregisters within 16 or 10 % of what {} gives: {} of {}\n",
               candidates.front().assembled ? candidates.front().assembled->assembler : "ptxas", close,
               assembled);
  return 0;
}

}  // namespace

void add_tile(Subcommand& app, Action& chosen) {
  auto options = std::make_shared<TileOptions>();
  Subcommand* command = app.add_subcommand("tile",
                                           "Does a tile fit: what a kernel's configurations, or a tile typed "
                                           "in, take of an SM, and the occupancy");
  options->choice.add_to(*command, KernelChoice::Need::kOptional);
  command->add_flag("--all", options->all, "with KERNEL: its whole tuning space");
  command->add_flag("--ptxas", options->ptxas,
                    "with KERNEL: assemble too, and take the registers it really gets");
  command->add_option(
      "--svg", options->svg,
      "draw what fits into this file: KERNEL's tuning space, or the tiles around the one typed in");
  options->gpu.add_to(*command);
  add_tile_options(*command, options->tile, options->dtype);
  command->add_flag("--json", options->json, "print JSON");
  command->callback([&chosen, command, options] {
    chosen = [command, options] {
      if (options->choice.is_given()) {
        refuse_given(*command, kTileOptions, "is of a tile typed in, KERNEL has its own");
        return kernel_tiles(*options);
      }
      refuse_given(*command, {"--ptxas", "--all"}, "goes with a KERNEL");
      options->choice.expect_nothing_given();
      return typed_tile(*options);
    };
  });
}

}  // namespace imbrex::command
