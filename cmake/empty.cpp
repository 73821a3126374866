// The library is the archive of the engine objects; CMake wants one source of its own.
