# cpack -G DEB: one package of everything that cmake --install installs. scripts/package.sh runs it.
set(HARMONICS_MAINTAINER "Harmonics maintainers <maintainers@harmonics.invalid>"
    CACHE STRING "the Maintainer of the Debian package: Name <address>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME harmonics)
set(CPACK_PACKAGE_VENDOR "Harmonics")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "streaming engine that trains and serves neural models")
set(CPACK_PACKAGE_DESCRIPTION
    "Harmonics trains, fine-tunes and serves neural models without Python. A
model is a flow of layers joined by arrows; data comes from producers
(files, sockets, ZeroMQ) and leaves through consumers.
.
This package has the program, its plugins, sample flows, documentation, and
libraries and headers for plugins and for programs that embed the engine.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${HARMONICS_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, g++, python3, python3-numpy")  # for plugins; the Python module
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/DebianFolders.cmake)
include(CPack)
