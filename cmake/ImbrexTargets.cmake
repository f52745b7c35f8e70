# SPDX-License-Identifier: Apache-2.0
# The three kinds of target this project has. Sources are always listed by hand.

add_library(imbrex_options INTERFACE)
target_include_directories(imbrex_options INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_options(imbrex_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers
  # GCC 12 warns falsely in std::string (bug 105651) and in moved std::variant and std::optional (bug 105562);
  # from precompiled headers, also of std::string's copies (there it no longer knows a system header).
  "$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-maybe-uninitialized>"
  "$<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>"  # a loop that is not vectorised is slower, not wrong
  "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${IMBREX_PCH}>>:-Wno-stringop-overread;-Wno-stringop-overflow;-Wno-array-bounds>")
# Floating point as written, rounded at every step; but no flags or errno are read, and giving those up lets loops
# over arithmetic with conditions vectorise.
target_compile_options(imbrex_options INTERFACE -ffp-contract=off -fno-trapping-math -fno-math-errno)
if(IMBREX_WERROR)
  target_compile_options(imbrex_options INTERFACE -Werror)
endif()
if(IMBREX_SANITIZE)
  target_compile_options(imbrex_options INTERFACE -fsanitize=${IMBREX_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(imbrex_options INTERFACE -fsanitize=${IMBREX_SANITIZE})
endif()

# imbrex_precompiled(NAME HEADER LIBRARY ...): a set of precompiled headers that targets of the same directory flags share.
function(imbrex_precompiled name header)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} STATIC ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE imbrex_options ${ARGN})
  if(IMBREX_PCH)
    target_precompile_headers(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/${header})
  endif()
endfunction()
function(imbrex_use_precompiled target name)
  if(IMBREX_PCH)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

# imbrex_layer(core SOURCES a.cpp b.cpp DEPENDS other_layer ...): one folder of src/ as the static library imbrex_core.
# DEPENDS names the layers this one may include, which is how the one-way dependencies are kept.
function(imbrex_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;LINKS" ${ARGN})
  add_library(imbrex_${name} STATIC ${arg_SOURCES})
  target_link_libraries(imbrex_${name} PRIVATE imbrex_options PUBLIC fmt::fmt ${arg_LINKS})
  target_include_directories(imbrex_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  foreach(layer IN LISTS arg_DEPENDS)
    target_link_libraries(imbrex_${name} PUBLIC imbrex_${layer})
  endforeach()
  imbrex_use_precompiled(imbrex_${name} imbrex_std_headers)
  set_property(GLOBAL APPEND PROPERTY IMBREX_LAYERS imbrex_${name})
endfunction()

# imbrex_looks_for_ptxas(RESULT TARGET ...): whether a source of one of these targets, or an object library that is in one,
# calls what looks for ptxas. Of the product's libraries the answer is no: it is the tests that are asked.
function(imbrex_looks_for_ptxas result)
  set(found FALSE)
  foreach(target IN LISTS ARGN)
    set(sources "")
    if(TARGET ${target} AND NOT target MATCHES "^imbrex_")
      get_target_property(folder ${target} SOURCE_DIR)
      get_target_property(sources ${target} SOURCES)
    endif()
    foreach(source IN LISTS sources)
      if(source MATCHES "TARGET_OBJECTS:([a-z_]+)")
        imbrex_looks_for_ptxas(found ${CMAKE_MATCH_1})
      elseif(EXISTS ${folder}/${source})
        file(STRINGS ${folder}/${source} lines REGEX "ptxas_says|find_ptxas|IMBREX_NEEDS_PTXAS|make_package" LIMIT_COUNT 1)
        if(lines)
          set(found TRUE)
        endif()
      endif()
      if(found)
        set(${result} TRUE PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
  set(${result} FALSE PARENT_SCOPE)
endfunction()

# imbrex_test(ptx_reader SOURCES reader_test.cpp LAYERS ptx [LABELS quick_foreign]): one GoogleTest program, test_ptx_reader.
# Without LABELS a test is `quick`; `full` leaves it to scripts/test --long. Quick tests of the folders below, where text
# is parsed and indices computed, are also built and run under the sanitizers.
add_custom_target(quick_tests)
add_custom_target(sanitized_tests)
set(IMBREX_SANITIZED_TESTS core layout ir lang passes ptx)
function(imbrex_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LAYERS;LINKS;LABELS" ${ARGN})
  add_executable(test_${name} ${arg_SOURCES})
  target_link_libraries(test_${name} PRIVATE imbrex_options GTest::gtest_main GTest::gmock ${arg_LINKS})
  imbrex_use_precompiled(test_${name} imbrex_test_headers)
  foreach(layer IN LISTS arg_LAYERS)
    target_link_libraries(test_${name} PRIVATE imbrex_${layer})
  endforeach()
  target_compile_definitions(test_${name} PRIVATE IMBREX_SOURCE_DIR="${PROJECT_SOURCE_DIR}" IMBREX_BINARY_DIR="${PROJECT_BINARY_DIR}")
  if(NOT arg_LABELS)
    set(arg_LABELS quick)
  endif()
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)  # tests_vgpu: every test of tests/vgpu
  if(NOT TARGET tests_${folder})
    add_custom_target(tests_${folder})
  endif()
  add_dependencies(tests_${folder} test_${name})
  if(arg_LABELS MATCHES "quick")
    add_dependencies(quick_tests test_${name})
    if(folder IN_LIST IMBREX_SANITIZED_TESTS)
      add_dependencies(sanitized_tests test_${name})
      string(APPEND arg_LABELS _sanitized)  # one word: gtest_discover_tests takes no lists; label patterns find both parts
    endif()
  endif()
  imbrex_looks_for_ptxas(looks test_${name} ${arg_LINKS})
  if(looks)
    string(APPEND arg_LABELS _ptxas)  # scripts/test runs it once more with ptxas hidden
  endif()
  # Where the compiler ran: source paths may be relative to it, and error messages quote the source.
  gtest_discover_tests(test_${name} WORKING_DIRECTORY ${PROJECT_BINARY_DIR} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 TEST_FILTER "-*AtLength*" PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 600)
endfunction()

# imbrex_full_run(ptx_reader 4): test_ptx_reader again for scripts/test --long, told by IMBREX_FULL (tests/full.h), as 4
# tests of a quarter each.
function(imbrex_full_run name shards)
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME ${name}_full.${shard} COMMAND test_${name} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
    set_tests_properties(${name}_full.${shard} PROPERTIES LABELS full TIMEOUT 3600
      ENVIRONMENT "IMBREX_FULL=1;GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()
