// SPDX-License-Identifier: Apache-2.0
// The `imbrex` command as a function, so that a program with kernels of its own gets the same command for them:
//
//   int main(int argc, char** argv) { return imbrex::command_main(argc, argv); }
#pragma once

namespace imbrex {

/// Runs the command line over every registered kernel. Returns the exit code: 0 done and verified, 1 a kernel
/// failed or was found wrong, 2 the command line or the kernel's source is wrong.
int command_main(int argc, char** argv);

}  // namespace imbrex
