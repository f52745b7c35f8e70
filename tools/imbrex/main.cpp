// SPDX-License-Identifier: Apache-2.0
#include "imbrex/command.h"

int main(int argc, char** argv) { return imbrex::command_main(argc, argv); }
