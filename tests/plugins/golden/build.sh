#!/bin/sh
# build.sh FOLDER: rebuilds the binaries of this folder. Run it in the root of the repository, with the headers of
# contract 1.0.
set -eu
out=$1
here=tests/plugins/golden
small="-fPIC -shared -fvisibility=hidden -ffile-prefix-map=$PWD=. -Iinclude"
small="$small -Wl,--build-id=none -Wl,-z,now -Wl,-z,noseparate-code -Wl,--gc-sections -s"
sections="-Os -ffunction-sections -fdata-sections -fvisibility-inlines-hidden -Wl,--version-script=cmake/plugin.map"
g++ -std=c++17 -D_GLIBCXX_USE_CXX11_ABI=0 '-DVARIANT="gnu"' $sections $small $here/kinds_v1.cpp \
  -o "$out/kinds_v1_gnu.so"
clang++ -std=c++20 '-DVARIANT="clang"' $sections $small $here/kinds_v1.cpp -o "$out/kinds_v1_clang.so"
gcc -std=c11 -Os '-DVARIANT="c"' $small $here/kinds_v1.c -lm -o "$out/kinds_v1_c.so"
# A plugin built without the flags above.
g++ -std=c++17 -O2 -fPIC -shared "-ffile-prefix-map=$PWD=." -Iinclude -Wl,--build-id=none -s $here/seed_v1.cpp \
  -o "$out/seed_v1.so"
for library in "$out"/*_v1*.so; do objcopy --remove-section=.comment "$library"; done
