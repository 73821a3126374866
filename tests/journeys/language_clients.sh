#!/usr/bin/env bash
# Fetches the packages of language_clients.py, language_clients.mjs and chat_page.mjs into FOLDER and runs the tests
# that need them:
#
#   tests/journeys/language_clients.sh FOLDER [build/ci]
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,5s/^# \?//p' "$0"; exit 2; }
mkdir -p "$1"
folder=$(realpath "$1") build=${2:-build/ci}
if [ ! -x "$folder/venv/bin/python" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet openai ollama
fi
if [ ! -d "$folder/node_modules/playwright-core" ]; then
  npm install --silent --no-audit --no-fund --prefix "$folder" openai ollama playwright-core
fi
export HARMONICS_CLIENT_PYTHON=$folder/venv/bin/python HARMONICS_CLIENT_MODULES=$folder
exec "$build/bin/test_journeys" 'clients:*' --warn NoTests --durations yes
