#!/usr/bin/env bash
# packages.sh [build|test|full|package|package_test]: installs the Debian 12 packages that the step needs.
set -euo pipefail
build=(g++ cmake ninja-build pkg-config libboost1.81-dev libboost-json1.81-dev libtbb-dev libdnnl-dev ocl-icd-opencl-dev
       opencl-headers zlib1g-dev libzstd-dev libpng-dev libturbojpeg0-dev libsimdjson-dev libfmt-dev
       libprotobuf-dev protobuf-compiler libzmq3-dev libpcre2-dev libyaml-cpp-dev)
test=(ccache mold catch2 curl mandoc zsh fish libbenchmark-dev clang clang-format libclang-rt-14-dev file
      pocl-opencl-icd python3-dev pybind11-dev python3-numpy)
full=(clang-tidy libomp-14-dev)
package=(binutils dpkg-dev file patchelf python3 python3-dev pybind11-dev)
package_test=(debootstrap)
case "${1:-build}" in
  build) wanted=("${build[@]}") ;;
  test) wanted=("${build[@]}" "${test[@]}") ;;
  full) wanted=("${full[@]}") ;;
  package) wanted=("${package[@]}") ;;
  package_test) wanted=("${package_test[@]}") ;;
  *) echo "usage: scripts/packages.sh [build|test|full|package|package_test]" >&2; exit 2 ;;
esac
missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
echo "installing: ${missing[*]}"
sudo=()
if [ "$(id -u)" -ne 0 ]; then sudo=(sudo); fi
"${sudo[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
