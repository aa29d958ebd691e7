#!/usr/bin/env bash
# Generates the generated files anew and fails if one differs from what is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
cp -R schema tests docs fixtures "$before"
make --silent schema >"$before/log" 2>&1 || {
    cat "$before/log" >&2
    exit 1
}
for folder in schema tests docs fixtures; do
    diff -ru "$before/$folder" "$folder" || {
        echo "generated files are out of date: 'make schema' has just rewritten them; commit what it changed" >&2
        exit 1
    }
done
echo "generated files are up to date"
