# SPDX-License-Identifier: Apache-2.0
# Every public header compiles by itself, with no include path but include/.
file(GLOB_RECURSE headers RELATIVE ${INCLUDE} ${INCLUDE}/imbrex/*.h)
foreach(header IN LISTS headers)
  file(WRITE ${WORK}/header.cpp "#include \"${header}\"\n")
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${INCLUDE} ${WORK}/header.cpp
    RESULT_VARIABLE result ERROR_VARIABLE errors)
  if(NOT result EQUAL 0)
    message(SEND_ERROR "${header} does not compile by itself\n${errors}")
  endif()
endforeach()
