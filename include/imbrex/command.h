// SPDX-License-Identifier: Apache-2.0
// The `imbrex` command as a function, so that a program with kernels of its own gets the same command for them:
//
//   int main(int argc, char** argv) { return imbrex::command_main(argc, argv); }
#pragma once

#include <string>
#include <vector>

namespace imbrex {

/// Runs the command line over every registered kernel. Returns the exit code: 0 done and verified, 1 a kernel
/// failed or was found wrong, 2 the command line or the kernel's source is wrong. `itself`: the words that start the command,
/// before the name of a subcommand, since `tune` and `profile` start others; none: this program.
int command_main(int argc, char** argv, const std::vector<std::string>& itself = {});

}  // namespace imbrex
