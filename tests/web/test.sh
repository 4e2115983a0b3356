#!/bin/sh
# Builds the engine for the browser and runs it there; the last line is 'N passed, N failed'.
# `npm test` in web/ runs this, and ./test runs that. Where build/bin/rullama is there, its tokens are compared too.
set -eu
cd "$(dirname "$0")/../.."
[ -n "${RULLAMA_BUILD:-}" ] || RULLAMA_BUILD=build-wasm

tools/install-packages test
[ web/node_modules/.package-lock.json -nt web/package-lock.json ] || (cd web && npm ci --no-audit --no-fund --silent)
tools/configure "$RULLAMA_BUILD" -DCMAKE_TOOLCHAIN_FILE=cmake/wasm.cmake -DRULLAMA_WERROR=ON
log=$(mktemp)
trap 'rm -f "$log"' EXIT
ninja -C "$RULLAMA_BUILD" web >"$log" 2>&1 || { tail -n 40 "$log"; echo "0 passed, 1 failed"; exit 1; }
ls -l web/out/*.wasm | awk '{ printf "%s: %.0f KB\n", $9, $5 / 1000 }'

native=build/bin/rullama
[ -x $native ] || native=
exec node tests/web/run.mjs $native
