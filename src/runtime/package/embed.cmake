# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C++ source that holds the files in FILES (a list) as string literals: templates/plan.c.in becomes
# imbrex::runtime::templates::plan_c.
set(source "#include \"runtime/package/template_text.h\"\n\nnamespace imbrex::runtime::templates {\n")
foreach(file IN LISTS FILES)
  cmake_path(GET file FILENAME name)
  string(REGEX REPLACE "\\.in$" "" name ${name})
  string(MAKE_C_IDENTIFIER ${name} name)
  file(READ ${file} text)
  string(APPEND source "\nconst std::string_view ${name} = R\"TEMPLATE(${text})TEMPLATE\";\n")
endforeach()
file(WRITE ${OUTPUT} "${source}\n}  // namespace imbrex::runtime::templates\n")
