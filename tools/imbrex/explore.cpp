// SPDX-License-Identifier: Apache-2.0
// `imbrex explore`: one offline page with the memory hierarchy, nested tiles, bank conflicts and the tile
// calculator to play with. Its numbers are computed in the page, from the facts written into it here; a test
// compares them with the C++.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "imbrex/inspect/banks.h"
#include "imbrex/inspect/gpu_model.h"
#include "imbrex/inspect/occupancy.h"
#include "imbrex/inspect/tiling.h"
#include "imbrex/lang/swizzle.h"
#include "pages.h"
#include "subcommands.h"
#include "svg.h"

namespace imbrex::command {
namespace {

using Json = nlohmann::ordered_json;

Json facts() {
  Json gpus = Json::array(), targets = Json::object(), swizzles = Json::object(), atoms = Json::object();
  for (const GpuModel& gpu : gpu_models()) {
    gpus.push_back({{"name", gpu.name},
                    {"title", gpu.title},
                    {"target", gpu.target},
                    {"sms", gpu.sms},
                    {"clock_ghz", gpu.clock_ghz},
                    {"hbm_bytes", gpu.hbm_bytes},
                    {"hbm_bytes_per_second", gpu.hbm_bytes_per_second},
                    {"l2_bytes", gpu.l2_bytes},
                    {"l2_bytes_per_second", gpu.l2_bytes_per_second},
                    {"shared_bytes_per_clock", gpu.shared_bytes_per_clock},
                    {"float16_ops_per_clock", gpu.peak(float16) / (gpu.sms * gpu.clock_ghz * 1e9)}});
    for (const auto& [name, limit] : occupancy_limits(gpu.target)) targets[gpu.target][name] = limit;
    MatmulTile tile;
    tile.use_instructions_of(gpu.target);
    targets[gpu.target]["instruction"] = tile.operands_in_registers      ? "mma"
                                         : tile.accumulates_in_registers ? "wgmma"
                                                                         : "tcgen05";
  }
  // Where each 8 bytes of 1024 go: every pattern repeats within that.
  for (const std::string& name : swizzle_names()) {
    atoms[name] = layout::Swizzle::from_name(name).value().atom_bytes();
    for (int64_t address = 0; address < 1024; address += 8)
      swizzles[name].push_back(swizzled_address(name, address) / 8);
  }
  return {{"gpus", gpus}, {"targets", targets}, {"swizzles", swizzles}, {"atoms", atoms}};
}

}  // namespace

void add_explore(Subcommand& app, Action& chosen) {
  auto output = std::make_shared<std::string>("explore.html");
  Subcommand* command = app.add_subcommand(
      "explore", "Write a page to play with: memory hierarchy, nested tiles, banks, which tiles fit");
  command->add_option("-o,--output", *output, "the page")->capture_default_str();
  command->callback([&chosen, output] {
    chosen = [output] {
      write_file(*output, page(kExplorePage, facts().dump()));
      fmt::print("wrote {}: open it in a browser\n", *output);
      return 0;
    };
  });
}

}  // namespace imbrex::command
