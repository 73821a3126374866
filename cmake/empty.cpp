// The library is the archive of the engine objects; CMake requires a source file.
