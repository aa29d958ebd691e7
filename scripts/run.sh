#!/usr/bin/env bash
# Builds the gateway, starts it with a data folder of its own (run/), and lets a simulated fleet upload to it over real
# HTTP behind a bad link until Ctrl-C; then compares and checks the books. LISTEN=ADDR:PORT chooses another address,
# DEVICES=N the size of the fleet, DURATION=60s ends it by itself.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup-test.sh build

listen=${LISTEN:-127.0.0.1:8080}
store=sqlite:run/tidegate.db
tidegate=target/release/tidegate
log=run/tidegate.log

cargo build --locked --release
mkdir -p run
# A gateway that runs already writes there, too: look only at what is new.
touch "$log"
said=$(wc -l <"$log")
# Each in a session of its own: Ctrl-C comes to this script, which ends the fleet first; it delivers what waits.
setsid "$tidegate" serve --listen "$listen" --store "$store" 2>>"$log" &
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

# Each run has a fleet of its own: what the gateway knows of earlier ones stays as it is.
prefix=sail-$(date -u +%m%d-%H%M%S)
cat <<TEXT

The gateway runs at $url (log: $log). Ctrl-C stops it.
Tokens and keys:  run/secrets.toml
Read positions:   curl -H "Authorization: Bearer \$(sed -n 's/^read_tokens = \["\([^"]*\)"\].*/\1/p' run/secrets.toml)" $url/v1/devices
Upload a batch:   $tidegate send --url $url --store $store fixtures/demo/01-track-exp-084-1.json
Check the books:  $tidegate verify --store $store

A fleet sails, two days at sea already, behind a link that loses one request or answer in five:
TEXT
setsid "$tidegate" simulate --url "$url" --store "$store" --prefix "$prefix" --devices "${DEVICES:-24}" \
    --live --history 48h --interval 10 --loss 0.2 --duplicate 0.1 --reorder 0.1 \
    ${DURATION:+--duration "$DURATION"} &
fleet=$!
trap 'kill -INT "$fleet" 2>/dev/null || true' INT TERM
# A signal ends the waiting, not the fleet.
wait_for_fleet() {
    agreed=0
    wait "$fleet" || agreed=$?
}
wait_for_fleet
while kill -0 "$fleet" 2>/dev/null; do wait_for_fleet; done
# The last signal may have come with its end: then its own status is still to be had.
[ "$agreed" -le 128 ] || wait_for_fleet
trap 'exit 0' INT TERM
echo
echo "The law, over the whole database:"
"$tidegate" verify --store "$store"
exit "$agreed"
