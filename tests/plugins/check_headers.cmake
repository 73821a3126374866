# cmake -DINCLUDE=folder -DCOMPILER=c++ -P: each public header compiles alone as C++17, harmonics.hpp also as C++20, and
# the C interfaces as C11, without warnings.
set(warnings -Wall -Wextra -Wpedantic -Werror)
file(GLOB headers ${INCLUDE}/harmonics/*.hpp)
foreach(header IN LISTS headers)
  execute_process(COMMAND ${COMPILER} -std=c++17 ${warnings} -fsyntax-only -I${INCLUDE}
                          -include ${header} -x c++ /dev/null COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${COMPILER} -std=c++20 ${warnings} -fsyntax-only -I${INCLUDE}
                        -include ${INCLUDE}/harmonics/harmonics.hpp -x c++ /dev/null COMMAND_ERROR_IS_FATAL ANY)
foreach(header IN ITEMS abi.h graph_abi.h)
  execute_process(COMMAND ${COMPILER} -x c -std=c11 ${warnings} -fsyntax-only -I${INCLUDE}
                          -include ${INCLUDE}/harmonics/${header} /dev/null COMMAND_ERROR_IS_FATAL ANY)
endforeach()
