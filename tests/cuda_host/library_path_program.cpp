// SPDX-License-Identifier: Apache-2.0
// Opens the library that its argument names, as clients do that know where cuBLAS lies, and prints the file that its
// cublasCreate_v2 comes from.
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  void* const library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : nullptr;
  void* const function = library != nullptr ? dlsym(library, "cublasCreate_v2") : nullptr;
  Dl_info info{};
  if (function == nullptr || dladdr(function, &info) == 0) return std::puts("nowhere") < 0 ? 1 : 0;
  std::puts(info.dli_fname);
}
