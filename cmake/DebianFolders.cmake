# Run by cpack on the files of the package before it packs them.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
# Debian's zsh reads the completions of packages from a folder of its own.
set(zsh ${CPACK_TEMPORARY_INSTALL_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/share/zsh)
file(RENAME ${zsh}/site-functions ${zsh}/vendor-completions)
