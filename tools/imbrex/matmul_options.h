// SPDX-License-Identifier: Apache-2.0
// A matrix product and its tile on the command line, shared by `imbrex tile` and `imbrex roofline`.
#pragma once

#include <initializer_list>
#include <string>

#include "command_line.h"
#include "imbrex/inspect/tiling.h"

namespace imbrex::command {

/// What add_tile_options() adds, for those who take none of them.
inline constexpr std::initializer_list<const char*> kTileOptions = {
    "--block-m", "--block-n", "--block-k", "--stages", "--threads", "--cluster-m", "--cluster-n", "--dtype"};

/// Adds --block-m ... and --dtype; `tile` must outlive the command.
void add_tile_options(Subcommand& command, MatmulTile& tile, std::string& dtype);

}  // namespace imbrex::command
