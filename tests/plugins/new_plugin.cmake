# cmake -DPROGRAM=harmonics -DKIND=loss -DBUILD=folder -DPREFIX=installed -DGENERATOR=... -DCOMPILER=c++ -DFLAGS=... -P:
# builds the project that `plugin new` writes, out of tree, and runs its tests.
file(REMOVE_RECURSE ${BUILD})
execute_process(COMMAND ${PROGRAM} plugin new my_${KIND} --kind ${KIND} --directory ${BUILD}/source
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${BUILD}/source -B ${BUILD}/build -G ${GENERATOR}
                        -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_CXX_COMPILER=${COMPILER}
                        "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror ${FLAGS}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --test-dir ${BUILD}/build --output-on-failure --no-tests=error
                COMMAND_ERROR_IS_FATAL ANY)
