# SPDX-License-Identifier: Apache-2.0
# Kernel authors recompile often: a public header includes nothing that its reader does not need. There is no include path
# but include/ here, so that none of src/ is included either.

# check_light(HEADER PATTERN ...): HEADER includes, directly or not, no file that matches one of the patterns.
function(check_light header)
  execute_process(
    COMMAND ${COMPILER} -std=c++20 -M -I${INCLUDE} ${INCLUDE}/${header}
    RESULT_VARIABLE result OUTPUT_VARIABLE headers ERROR_VARIABLE errors)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${errors}")
  endif()
  foreach(heavy IN LISTS ARGN)
    if(headers MATCHES "/(${heavy})[ \n]")
      message(SEND_ERROR "${header} includes ${CMAKE_MATCH_1}")
    endif()
  endforeach()
endfunction()

set(heavy iostream regex filesystem chrono fmt/format.h fmt/core.h cuda.h)
set(other_readers imbrex/runtime/[a-z_]+.h imbrex/vgpu/[a-z_]+.h imbrex/inspect/[a-z_]+.h)
check_light(imbrex/lang.h ${heavy} ${other_readers})
check_light(imbrex/imbrex.h ${heavy} imbrex/vgpu/virtual_gpu.h imbrex/vgpu/timeline.h)
check_light(imbrex/runtime/host_tensor.h ${heavy} imbrex/vgpu/[a-z_]+.h imbrex/lang/[a-z_]+.h)
check_light(imbrex/runtime/device.h ${heavy} imbrex/vgpu/virtual_gpu.h imbrex/vgpu/timeline.h imbrex/lang/[a-z_]+.h)
check_light(imbrex/vgpu.h ${heavy} imbrex/lang/[a-z_]+.h imbrex/runtime/[a-z_]+.h)
