#!/bin/sh
# module_tests.sh HARMONICS SOURCE FOLDER_OF_MODULE PYTHON [unittest argument...]: tests the Python module. Exits 77,
# with the reason, if the module is not built or no Python can load it and NumPy.
set -eu
harmonics=$1 source=$2 module=$3 built_for=$4
shift 4
if [ -z "$module" ]; then
  echo "skipped: the Python module is not built (packages python3-dev, pybind11-dev)"
  exit 77
fi
for python in "${HARMONICS_PYTHON:-}" "$built_for" python3 /usr/bin/python3; do
  if [ -n "$python" ] && PYTHONPATH=$module "$python" -c 'import numpy, harmonics' 2>/dev/null; then
    PYTHONPATH=$module PYTHONDONTWRITEBYTECODE=1 HARMONICS_PROGRAM=$harmonics HARMONICS_SOURCE=$source \
      exec "$python" -m unittest discover -s "$source/tests/python" "$@"
  fi
done
error=$(PYTHONPATH=$module "$built_for" -c 'import harmonics' 2>&1) || { echo "$error"; exit 1; }
echo "skipped: no NumPy for $built_for (package python3-numpy; HARMONICS_PYTHON names another interpreter)"
exit 77
