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

# Documentation, samples, and what other programs read: schemas of --json, the header of frames.
set(documentation ${CMAKE_INSTALL_DATADIR}/doc/harmonics)
install(FILES README.md CHANGELOG.md SECURITY.md LICENSE DESTINATION ${documentation})
install(DIRECTORY docs DESTINATION ${documentation} PATTERN schema EXCLUDE)
install(DIRECTORY samples DESTINATION ${CMAKE_INSTALL_DATADIR}/harmonics)
install(DIRECTORY docs/schema DESTINATION ${CMAKE_INSTALL_DATADIR}/harmonics)
install(FILES wire/hxs.proto DESTINATION ${CMAKE_INSTALL_DATADIR}/harmonics/wire)
install(FILES wire/hxs.proto DESTINATION ${documentation}/wire)  # where the documents link to

# The licenses of Harmonics and of what is compiled into it.
set(compiled_in)
if(TARGET harmonics_cuda)
  set(text "NVIDIA CUDA Toolkit End User License Agreement; the toolkit has its text.\n")
  get_filename_component(toolkit ${CMAKE_CUDA_COMPILER} DIRECTORY)
  file(GLOB agreements ${toolkit}/../EULA.txt ${toolkit}/../dist-info/nvidia_cuda_runtime-*/licenses/License.txt)
  if(agreements)
    list(GET agreements 0 agreement)
    file(READ ${agreement} text)
  endif()
  string(APPEND compiled_in "\n\n== Compiled into the plugin libharmonics_cuda.so alone: the CUDA runtime\n\n${text}")
endif()
configure_file(cmake/copyright.in ${CMAKE_BINARY_DIR}/copyright @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/copyright DESTINATION ${documentation})

# Manual pages and completions, made by the program itself from its table of verbs and flags.
set(generated ${CMAKE_BINARY_DIR}/share)
find_program(HARMONICS_GZIP gzip REQUIRED)
set(make_pages ${CMAKE_CURRENT_LIST_DIR}/MakePages.cmake)
add_custom_command(OUTPUT ${generated}/made DEPENDS harmonics_cli ${make_pages} VERBATIM
                   COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:harmonics_cli> -DGZIP=${HARMONICS_GZIP}
                           -DTO=${generated} -P ${make_pages})
add_custom_target(harmonics_pages ALL DEPENDS ${generated}/made)
install(DIRECTORY ${generated}/ DESTINATION ${CMAKE_INSTALL_DATADIR} PATTERN made EXCLUDE)
if(TARGET test_journeys)  # they install
  add_dependencies(test_journeys harmonics harmonics_sender harmonics_pages)
endif()
