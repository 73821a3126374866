# build_matrix.sh PREFIX TESTS SAMPLES OUT LAUNCHER COMPILER...: builds the plugin of every kind and the sample's plugin
# against an installed prefix, with every compiler, C++17 and C++20, both string ABIs. Two builds have the same name
# ("again"), so that one can replace the other in a reload.
set -eu
prefix=$1 tests=$2 samples=$3 out=$4 launcher=$5
shift 5
rm -rf "$out"
mkdir -p "$out"
compile() { # compiler, C++ standard, string ABI, source, output, further flags
  compiler=$1 standard=$2 strings=$3 source=$4 to=$5
  shift 5
  $launcher "$compiler" "-std=c++$standard" "-D_GLIBCXX_USE_CXX11_ABI=$strings" -O0 -Wall -Wextra -Wpedantic -Werror \
    -fPIC "-I$prefix/include" "$@" -c "$source" -o "$to.o"
  "$compiler" -shared "$to.o" -o "$to.so"
  rm "$to.o"
}
n=0
for compiler; do
  n=$((n + 1))
  for standard in 17 20; do
    for strings in 0 1; do
      name=c${n}_${standard}_${strings}
      compile "$compiler" $standard $strings "$tests/golden/kinds_v1.cpp" "$out/$name" "-DVARIANT=\"$name\"" &
      compile "$compiler" $standard $strings "$samples/custom_plugin/my_plugin.cpp" "$out/my_plugin_$name"
      wait $!
    done
  done
  last=$compiler
done
compile "$1" 17 0 "$tests/golden/kinds_v1.cpp" "$out/again_a" '-DVARIANT="again"' &
compile "$last" 20 1 "$tests/golden/kinds_v1.cpp" "$out/again_b" '-DVARIANT="again"'
wait $!
