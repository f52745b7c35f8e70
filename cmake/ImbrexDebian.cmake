# SPDX-License-Identifier: Apache-2.0
# Three Debian packages by CPack, which scripts/package builds: libimbrex-dev for find_package and pkg-config, imbrex, the
# command, and libimbrex0, the library of C.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "tile-level GPU kernel language in C++")
set(CPACK_PACKAGE_VENDOR "Imbrex")
set(CPACK_PACKAGE_CONTACT "The Imbrex maintainers <maintainers@imbrex.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL dev command runtime)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_STRIP_FILES bin/imbrex ${CMAKE_INSTALL_LIBDIR}/libimbrex.so.${PROJECT_VERSION})

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libimbrex-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libimbrex${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION}), libfmt-dev, libhwy-dev, libstdc++-12-dev | libstdc++-dev")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "cmake (>= 3.24), pkg-config, imbrex")
set(CPACK_DEBIAN_DEV_DESCRIPTION "Development files. Kernels are C++ structs, traced and compiled to PTX for NVIDIA
GPUs from Ampere to Blackwell, or executed on a virtual GPU on the CPU, which checks
for races, deadlocks and stray accesses. Headers, static libraries, and a library of
kernels: matmul, attention, softmax, layer normalisation.")
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME imbrex)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/cuda)  # libcuda.so.1 is our own
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS "libcuda1, nvidia-cuda-toolkit")
set(CPACK_DEBIAN_COMMAND_DESCRIPTION "The command. It lists, runs, verifies, tunes, benchmarks and explains kernels on an
NVIDIA GPU or on a virtual GPU on the CPU, and runs any CUDA program and any PTX on the
virtual GPU with its checkers.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libimbrex${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libcuda1")
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "Shared library for C. It runs PTX on an NVIDIA GPU, or on a virtual GPU on the CPU that
checks for races, deadlocks and stray accesses, and has a library of kernels: matmul,
attention, softmax, layer normalisation.")

# Only in the packages, not in `cmake --install`.
set(doc ${CMAKE_INSTALL_DATADIR}/doc)
install(FILES cmake/debian/copyright DESTINATION ${doc}/libimbrex-dev COMPONENT dev EXCLUDE_FROM_ALL)
install(FILES cmake/debian/copyright DESTINATION ${doc}/imbrex COMPONENT command EXCLUDE_FROM_ALL)
install(FILES cmake/debian/copyright DESTINATION ${doc}/libimbrex${PROJECT_VERSION_MAJOR} COMPONENT runtime EXCLUDE_FROM_ALL)
install(DIRECTORY examples/standalone/ DESTINATION ${doc}/libimbrex-dev/examples COMPONENT dev EXCLUDE_FROM_ALL)
include(CPack)
