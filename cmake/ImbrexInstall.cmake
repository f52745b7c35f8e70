# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs: for find_package(imbrex), for pkg-config, the command, and libimbrex.so. Three
# components, which are also the three Debian packages: dev, command, runtime.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)

foreach(library c command kernels kernels_archive)
  set_target_properties(imbrex_${library} PROPERTIES EXPORT_NAME ${library})
endforeach()
foreach(library imbrex imbrex_c imbrex_command imbrex_kernels)  # the same names for who adds this folder to a build
  string(REGEX REPLACE "^imbrex_" "" name ${library})
  add_library(imbrex::${name} ALIAS ${library})
endforeach()

install(TARGETS imbrex imbrex_command imbrex_kernels imbrex_kernels_archive EXPORT imbrexTargets)
install(TARGETS imbrex_c EXPORT imbrexTargets LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS imbrex_tool RUNTIME COMPONENT command)
if(IMBREX_CUDA_HOST)  # in a folder of their own, so that no program meets them unasked
  install(TARGETS imbrex_libcuda imbrex_libcudart_12 imbrex_libcudart_13 imbrex_jit_link_12 imbrex_jit_link_13
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/imbrex/cuda COMPONENT command)
  install(TARGETS imbrex_cublas_12 imbrex_cublas_13 imbrex_cublasLt_12 imbrex_cublasLt_13 imbrex_curand imbrex_blas_search
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/imbrex/cuda/blas COMPONENT command)
  install(PROGRAMS src/cuda_host/ptxas src/cuda_host/nvcc DESTINATION ${CMAKE_INSTALL_LIBDIR}/imbrex/cuda
    COMPONENT command)
  install(DIRECTORY src/cuda_host/python DESTINATION ${CMAKE_INSTALL_LIBDIR}/imbrex/cuda COMPONENT command)
endif()

# Machine code of the products, where ptxas is there: first calls then compile nothing (docs/tuning.md). It takes minutes
# of CPU time; IMBREX_SHIP_CODE in the environment is OFF, or how the names begin of those that are wanted.
if(NOT CMAKE_CROSSCOMPILING)
  install(CODE "
    find_program(ptxas ptxas HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
    if(NOT ptxas)
      message(STATUS \"No ptxas: ${CMAKE_INSTALL_DATADIR}/imbrex/code stays empty\")
    elseif(NOT \"\$ENV{IMBREX_SHIP_CODE}\" STREQUAL \"OFF\")
      message(STATUS \"Assembling the products of the kernel library: some minutes, or IMBREX_SHIP_CODE=OFF in the environment\")
      set(only)
      if(DEFINED ENV{IMBREX_SHIP_CODE})
        set(only --only \"\$ENV{IMBREX_SHIP_CODE}\")
      endif()
      execute_process(COMMAND \"$<TARGET_FILE:imbrex_tool>\" cache fill
        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/imbrex/code\" \${only} COMMAND_ERROR_IS_FATAL ANY)
    endif()" COMPONENT runtime)
endif()

install(DIRECTORY include/imbrex DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/imbrex)
install(EXPORT imbrexTargets NAMESPACE imbrex:: DESTINATION ${package_folder})
configure_package_config_file(cmake/imbrexConfig.cmake.in ${PROJECT_BINARY_DIR}/imbrexConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/imbrexConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/imbrexConfig.cmake ${PROJECT_BINARY_DIR}/imbrexConfigVersion.cmake
  DESTINATION ${package_folder})

# pkg-config. The libraries of C++ are archives only, so whatever they need is in Requires and Libs; there is nothing that
# only --static must add. libimbrex.so is C's, so the archive of that name is asked for by its file.
set(pc_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH to_prefix /${pc_folder} /)
string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
function(imbrex_pkg_config name description requires libs)
  configure_file(cmake/imbrex.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pc_folder})
endfunction()
imbrex_pkg_config(imbrex ${PROJECT_DESCRIPTION} "fmt, libhwy" "-l:libimbrex.a -pthread -ldl")
imbrex_pkg_config(imbrex-kernels "The kernel library of Imbrex" imbrex
  "-Wl,--whole-archive,-limbrex_kernels,--no-whole-archive")
imbrex_pkg_config(imbrex-c "Imbrex for C" "" -limbrex)
imbrex_pkg_config(imbrex-command "The imbrex command for a program's own kernels" imbrex -limbrex_command)
