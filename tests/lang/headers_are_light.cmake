# SPDX-License-Identifier: Apache-2.0
# Kernel authors recompile often: the language's headers must drag in no heavy ones, and (having
# no other include path here) none of src/.
execute_process(
  COMMAND ${COMPILER} -std=c++20 -M -I${INCLUDE} ${INCLUDE}/imbrex/imbrex.h
  RESULT_VARIABLE result OUTPUT_VARIABLE headers ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${errors}")
endif()
foreach(heavy iostream regex filesystem chrono fmt/format.h fmt/core.h cuda.h)
  if(headers MATCHES "/${heavy}[ \n]")
    message(FATAL_ERROR "imbrex/lang.h includes ${heavy}")
  endif()
endforeach()
