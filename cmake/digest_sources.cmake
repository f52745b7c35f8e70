# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C++ source that defines the digest of every source in FOLDERS (a list, below ROOT), declared by HEADER in
# NAMESPACE. Names and contents count, in the order of the names.
set(all "")
foreach(folder IN LISTS FOLDERS)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.cpp ${ROOT}/${folder}/*.def)
  list(SORT files)
  foreach(file IN LISTS files)
    file(SHA256 ${ROOT}/${file} digest)
    string(APPEND all "${file} ${digest}\n")
  endforeach()
endforeach()
string(SHA256 digest "${all}")
file(WRITE ${OUTPUT}
  "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\nconst std::string_view sources_digest = \"${digest}\";\n}\n")
