# cmake --install: program, library, headers, plugins, and find_package(Harmonics) for plugins and embedders.
include(CMakePackageConfigHelpers)

install(TARGETS harmonics_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS harmonics harmonics_headers EXPORT HarmonicsTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
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
