# SPDX-License-Identifier: Apache-2.0
# Compiles SOURCE with COMPILER and expects it to fail with a message that matches the regular expression on its
# "// error:" line ("none": expects success).
file(STRINGS ${SOURCE} wanted REGEX "^// error: ")
string(REGEX REPLACE "^// error: " "" wanted "${wanted}")
execute_process(
  COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${INCLUDE} ${SOURCE}
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(wanted STREQUAL "none")
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "does not compile:\n${output}")
  endif()
elseif(result EQUAL 0)
  message(FATAL_ERROR "compiles, though it should fail with: ${wanted}")
elseif(NOT output MATCHES "${wanted}")
  message(FATAL_ERROR "fails without the message: ${wanted}\n${output}")
endif()
