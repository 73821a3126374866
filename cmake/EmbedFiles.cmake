# hm_embed_files(OUTPUT HEADER NAMESPACE ROW files...): writes a source with the name and text of every file,
# declared in HEADER as `const ROW kROWs[]` and `kROWCount`. The suffix ".in" is removed from names.
function(hm_embed_files output header namespace row)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
  set(rows "")
  list(LENGTH ARGN count)
  foreach(path IN LISTS ARGN)
    get_filename_component(name ${path} NAME)
    string(REGEX REPLACE "\\.in$" "" name ${name})
    file(READ ${path} text)
    string(APPEND rows "    {\"${name}\", R\"__(${text})__\"},\n")
  endforeach()
  set(source
"#include \"${header}\"

namespace ${namespace} {

const ${row} k${row}s[] = {
${rows}};
const unsigned k${row}Count = ${count};

}  // namespace ${namespace}
")
  set(before "")
  if(EXISTS ${output})
    file(READ ${output} before)
  endif()
  if(NOT "${before}" STREQUAL "${source}")
    file(WRITE ${output} "${source}")
  endif()
endfunction()
