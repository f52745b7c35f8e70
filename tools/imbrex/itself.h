// SPDX-License-Identifier: Apache-2.0
// How the command starts itself anew.
#pragma once

#include <string>
#include <vector>

namespace imbrex::command {

/// The words before a subcommand's name; what command_main() was told, else this program.
const std::vector<std::string>& itself();
void set_itself(std::vector<std::string> words);

}  // namespace imbrex::command
