# cmake --install: program, library, headers, plugins, and find_package(Harmonics) for plugins and embedders.
include(CMakePackageConfigHelpers)

install(TARGETS harmonics_cli EXPORT HarmonicsTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS harmonics harmonics_sender harmonics_headers EXPORT HarmonicsTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/harmonics DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
get_property(plugins GLOBAL PROPERTY HARMONICS_INTREE_PLUGINS)
foreach(plugin IN LISTS plugins)
  install(TARGETS ${plugin} LIBRARY DESTINATION lib/harmonics/plugins)
  get_target_property(manifest ${plugin} HARMONICS_MANIFEST)
  if(manifest)
    install(FILES ${manifest} DESTINATION lib/harmonics/plugins)
  endif()
endforeach()
install(EXPORT HarmonicsTargets NAMESPACE Harmonics:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Harmonics)
configure_package_config_file(cmake/HarmonicsConfig.cmake.in ${CMAKE_BINARY_DIR}/HarmonicsConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Harmonics)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/HarmonicsConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/HarmonicsConfig.cmake ${CMAKE_BINARY_DIR}/HarmonicsConfigVersion.cmake
              cmake/HarmonicsPlugin.cmake cmake/plugin.map
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Harmonics)

# Manual pages and completions, made by the program itself from its table of verbs and flags.
set(generated ${CMAKE_BINARY_DIR}/share)
file(MAKE_DIRECTORY ${generated})
set(made)
foreach(verb IN ITEMS "" run infer validate explain profile bench send receive keys ckpt list inspect plugin config completion man version)
  string(JOIN - page harmonics ${verb})
  list(APPEND made ${generated}/man/man1/${page}.1)
  add_custom_command(OUTPUT ${generated}/man/man1/${page}.1 COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}/man/man1
                     COMMAND harmonics_cli man ${verb} > ${generated}/man/man1/${page}.1 DEPENDS harmonics_cli VERBATIM)
endforeach()
foreach(target IN ITEMS bash:bash-completion/completions/harmonics zsh:zsh/site-functions/_harmonics fish:fish/vendor_completions.d/harmonics.fish)
  string(REGEX MATCH "^([a-z]+):(.*)$" unused ${target})
  set(shell ${CMAKE_MATCH_1})
  set(file ${generated}/${CMAKE_MATCH_2})
  get_filename_component(folder ${file} DIRECTORY)
  list(APPEND made ${file})
  add_custom_command(OUTPUT ${file} COMMAND ${CMAKE_COMMAND} -E make_directory ${folder} COMMAND harmonics_cli completion ${shell} > ${file} DEPENDS harmonics_cli VERBATIM)
endforeach()
add_custom_target(harmonics_pages ALL DEPENDS ${made})
install(DIRECTORY ${generated}/ DESTINATION ${CMAKE_INSTALL_DATADIR})
