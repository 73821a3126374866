# Run by cpack before packing: moves files to the folders that Debian expects.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/share)
file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)
file(GLOB modules ${share}/../lib/python3.*/site-packages)  # Debian's python3 has one folder for all versions
foreach(folder IN LISTS modules)
  file(MAKE_DIRECTORY ${share}/../lib/python3)
  file(RENAME ${folder} ${share}/../lib/python3/dist-packages)
  get_filename_component(empty ${folder} DIRECTORY)
  file(REMOVE_RECURSE ${empty})
endforeach()
execute_process(COMMAND gzip -9 -n -c ${share}/doc/harmonics/CHANGELOG.md
                OUTPUT_FILE ${share}/doc/harmonics/changelog.gz COMMAND_ERROR_IS_FATAL ANY)
