#!/bin/sh
# build_v1_4.sh HEADERS FOLDER: rebuilds the binaries of contract 1.4. Run it in the root of the repository; HEADERS is
# the include folder of contract 1.4 (the parent of the commit that made HX_ABI_MINOR 5).
set -eu
headers=$1
out=$2
here=tests/plugins/golden
grep -q 'HX_ABI_MINOR 4' "$headers/harmonics/abi.h"
small="-fPIC -shared -fvisibility=hidden -ffile-prefix-map=$PWD=. -I$headers"
small="$small -Wl,--build-id=none -Wl,-z,now -Wl,-z,noseparate-code -Wl,--gc-sections -s"
sections="-Os -ffunction-sections -fdata-sections -fvisibility-inlines-hidden -Wl,--version-script=cmake/plugin.map"
g++ -std=c++17 -D_GLIBCXX_USE_CXX11_ABI=0 '-DVARIANT="gnu"' $sections $small $here/kinds_v1_4.cpp \
  -o "$out/kinds_v1_4_gnu.so"
clang++ -std=c++20 '-DVARIANT="clang"' $sections $small $here/kinds_v1_4.cpp -o "$out/kinds_v1_4_clang.so"
gcc -std=gnu11 -Os '-DVARIANT="c"' $small $here/kinds_v1_4.c -lm -o "$out/kinds_v1_4_c.so"
for library in "$out"/kinds_v1_4_*.so; do objcopy --remove-section=.comment "$library"; done
