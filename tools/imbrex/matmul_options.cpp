// SPDX-License-Identifier: Apache-2.0
#include "matmul_options.h"

#include "subcommands.h"

namespace imbrex::command {

void add_tile_options(Subcommand& command, MatmulTile& tile, std::string& dtype) {
  auto add = [&](const char* name, int64_t& value, const char* help) {
    command.add_option(name, value, help)->check(at_most(1 << 16))->capture_default_str();
  };
  add("--block-m", tile.block_m, "rows of the CTA tile");
  add("--block-n", tile.block_n, "columns of the CTA tile");
  add("--block-k", tile.block_k, "depth of one stage");
  add("--stages", tile.stages, "stages in shared memory");
  add("--threads", tile.threads, "threads of a CTA");
  add("--cluster-m", tile.cluster_m, "CTAs along m that share B's tiles by multicast");
  add("--cluster-n", tile.cluster_n, "CTAs along n that share A's tiles by multicast");
  command.add_option("--dtype", dtype, "element type of A and B")->capture_default_str();
}

}  // namespace imbrex::command
