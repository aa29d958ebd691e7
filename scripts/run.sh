#!/usr/bin/env bash
# Builds the gateway, starts it with a data folder of its own (run/), lets a few fixture trackers upload over
# real HTTP, and stays up until Ctrl-C. LISTEN=ADDR:PORT chooses another address.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup-test.sh

listen=${LISTEN:-127.0.0.1:8080}
store=sqlite:run/tidegate.db
tidegate=target/release/tidegate
log=run/tidegate.log

cargo build --locked --release
mkdir -p run
# A gateway that runs already writes there, too: look only at what is new.
touch "$log"
said=$(wc -l <"$log")
"$tidegate" serve --listen "$listen" --store "$store" 2>>"$log" &
gateway=$!
trap 'kill "$gateway" 2>/dev/null || true; wait "$gateway" 2>/dev/null || true' EXIT
trap 'exit 0' INT TERM

# Ready is a line of the log; a gateway that cannot start ends, and its log says why.
for _ in $(seq 100); do
    url=$(tail -n +$((said + 1)) "$log" | sed -n 's/.*listening on \(http:[^ ]*\).*/\1/p')
    [ -n "$url" ] && break
    kill -0 "$gateway" 2>/dev/null || break
    sleep 0.1
done
if [ -z "$url" ]; then
    tail -n +$((said + 1)) "$log" >&2
    exit 1
fi

echo "Trackers upload:"
for batch in fixtures/demo/*.json; do
    printf '  %-36s ' "$(basename "$batch")"
    "$tidegate" send --url "$url" --store "$store" "$batch"
done

token=$(sed -n 's/^read_tokens = \["\([^"]*\)"\].*/\1/p' run/secrets.toml)
echo
echo "Current positions:"
curl -fsS -H "Authorization: Bearer $token" "$url/v1/devices" | sed 's/},{"device_id"/},\n{"device_id"/g' |
    sed -n 's/.*"device_id":"\([^"]*\)","epoch_id":\([0-9]*\),"last_seq":\([0-9]*\),"lat":\([-0-9.]*\),"lon":\([-0-9.]*\),.*/  \1 epoch \2 seq \3 at \4, \5/p'
echo
cat <<TEXT

The gateway runs at $url (log: $log). Ctrl-C stops it.
Tokens and keys:  run/secrets.toml
Read positions:   curl -H "Authorization: Bearer \$(sed -n 's/^read_tokens = \["\([^"]*\)"\].*/\1/p' run/secrets.toml)" $url/v1/devices
Upload a batch:   $tidegate send --url $url --store $store fixtures/demo/01-track-exp-084-1.json
Check the books:  $tidegate verify --store $store
TEXT
wait "$gateway"
