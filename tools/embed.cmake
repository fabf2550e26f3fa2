# Writes texts as constants into a C++ file; run by the build, see dapple_embed().
#
#   cmake -D "TEXTS=NAME=FILE[,FILE...];..." -D FOLDER=DIR -D NAMESPACE=NAME -D OUTPUT=FILE -P embed.cmake

set(code "// Made by tools/embed.cmake.\n#include <string_view>\n\n")
string(APPEND code "namespace dapple::${NAMESPACE} {\n")
foreach(text IN LISTS TEXTS)
  string(REGEX MATCH "^([^=]+)=(.+)$" matched "${text}")
  set(name "${CMAKE_MATCH_1}")
  string(REPLACE "," ";" files "${CMAKE_MATCH_2}")
  string(APPEND code "\nextern const std::string_view ${name};\n")
  string(APPEND code "const std::string_view ${name} =")
  foreach(file IN LISTS files)
    file(READ "${FOLDER}/${file}" content)
    string(APPEND code "\n    R\"embedded(${content})embedded\"")
  endforeach()
  string(APPEND code ";\n")
endforeach()
string(APPEND code "\n}  // namespace dapple::${NAMESPACE}\n")
file(WRITE "${OUTPUT}" "${code}")
