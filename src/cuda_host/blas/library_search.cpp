// SPDX-License-Identifier: Apache-2.0
// An auditor of the program loader (LD_AUDIT, rtld-audit(7)): whoever asks for cuBLAS or cuRAND, be it by its full path, as CuPy does,
// or by a path that is written into a library, gets the one of IMBREX_BLAS_FOLDER. It is loaded apart from the program with
// a C library of its own, so it needs nothing else.
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kLongestPath = 4096;
const char* const kNames[] = {"libcublas.so.12", "libcublas.so.13", "libcublasLt.so.12", "libcublasLt.so.13",
                              "libcurand.so.10"};

}  // namespace

extern "C" __attribute__((visibility("default"))) unsigned la_version(unsigned) { return LAV_CURRENT; }

extern "C" __attribute__((visibility("default"))) char* la_objsearch(const char* name, uintptr_t*, unsigned) {
  static char paths[sizeof kNames / sizeof kNames[0]][kLongestPath];
  const char* const slash = std::strrchr(name, '/');
  const char* const file = slash == nullptr ? name : slash + 1;
  const char* const folder = std::getenv("IMBREX_BLAS_FOLDER");
  for (size_t i = 0; folder != nullptr && i < sizeof kNames / sizeof kNames[0]; ++i) {
    if (std::strcmp(file, kNames[i]) != 0 || std::strlen(folder) + 1 + std::strlen(kNames[i]) >= kLongestPath)
      continue;
    std::strcpy(paths[i], folder);
    std::strcat(paths[i], "/");
    std::strcat(paths[i], kNames[i]);
    if (access(paths[i], R_OK) == 0) return paths[i];
  }
  return const_cast<char*>(name);
}
