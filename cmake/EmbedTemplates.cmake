# hm_embed_templates(OUTPUT folder): a source with the text of every *.in of the folder, as engine/cli/plugin.hpp declares them.
function(hm_embed_templates output folder)
  file(GLOB templates CONFIGURE_DEPENDS ${folder}/*.in)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${templates})
  set(rows "")
  list(LENGTH templates count)
  foreach(path IN LISTS templates)
    get_filename_component(name ${path} NAME)
    string(REGEX REPLACE "\\.in$" "" name ${name})
    file(READ ${path} text)
    string(APPEND rows "    {\"${name}\", R\"__(${text})__\"},\n")
  endforeach()
  set(source
"#include \"engine/cli/plugin.hpp\"

namespace harmonics::cli {

const Template kTemplates[] = {
${rows}};
const unsigned kTemplateCount = ${count};

}  // namespace harmonics::cli
")
  set(before "")
  if(EXISTS ${output})
    file(READ ${output} before)
  endif()
  if(NOT "${before}" STREQUAL "${source}")
    file(WRITE ${output} "${source}")
  endif()
endfunction()
