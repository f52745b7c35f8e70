# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C++ source that holds the files in FILES (a list) as string literals in NAMESPACE, declared by HEADER:
# templates/plan.c.in becomes plan_c.
set(source "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
foreach(file IN LISTS FILES)
  cmake_path(GET file FILENAME name)
  string(REGEX REPLACE "\\.in$" "" name ${name})
  string(MAKE_C_IDENTIFIER ${name} name)
  file(READ ${file} text)
  string(APPEND source "\nconst std::string_view ${name} = R\"TEMPLATE(${text})TEMPLATE\";\n")
endforeach()
file(WRITE ${OUTPUT} "${source}\n}  // namespace ${NAMESPACE}\n")
