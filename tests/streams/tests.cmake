# The synth plugin is tested through the host's loader.
add_dependencies(test_streams harmonics_synth)
target_link_libraries(test_streams PRIVATE ZLIB::ZLIB PNG::PNG libjpeg-turbo::turbojpeg zstd::libzstd_shared
                                           ${CMAKE_DL_LIBS})
