"""A plain telemetry gateway: http.server and sqlite3, the standard library alone.

The baseline of `make bench`. It gives the guarantees that matter to a tracker: the signature is checked over
the raw body, a batch id counts once a device, each record is logged once, the current state only moves forwards, all of
it in one transaction, and the answer is sent after the commit is on disk.
"""

import hashlib
import hmac
import json
import os
import sqlite3
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SCHEMA = """
CREATE TABLE IF NOT EXISTS processed_batches (
    device_id TEXT, batch_id BLOB, body_hash BLOB, received_at REAL, PRIMARY KEY (device_id, batch_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS telemetry_log (
    device_id TEXT, epoch_id INTEGER, seq INTEGER, recorded_at TEXT, lat REAL, lon REAL, battery REAL, extra TEXT,
    PRIMARY KEY (device_id, epoch_id, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS device_current_state (
    device_id TEXT PRIMARY KEY, epoch_id INTEGER, last_seq INTEGER, recorded_at TEXT, lat REAL, lon REAL,
    battery REAL, received_at REAL
) WITHOUT ROWID;
"""
KNOWN = "SELECT body_hash FROM processed_batches WHERE device_id = ? AND batch_id = ?"
REMEMBER = "INSERT INTO processed_batches VALUES (?, ?, ?, ?)"
APPEND = "INSERT INTO telemetry_log VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
SWAP = """
INSERT INTO device_current_state AS s VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (device_id) DO UPDATE SET epoch_id = excluded.epoch_id, last_seq = excluded.last_seq,
    recorded_at = excluded.recorded_at, lat = excluded.lat, lon = excluded.lon, battery = excluded.battery,
    received_at = excluded.received_at
WHERE (excluded.epoch_id, excluded.last_seq) > (s.epoch_id, s.last_seq)
"""
NAMED = {"seq", "recorded_at", "lat", "lon", "battery"}


class Store:
    """One connection behind one lock."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.conn = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.conn.execute("PRAGMA journal_mode = WAL")
        self.conn.execute("PRAGMA synchronous = FULL")
        self.conn.execute("PRAGMA cache_size = -16384")
        self.conn.executescript(SCHEMA)

    def commit(self, device_id, batch, body_hash):
        now = time.time()
        batch_id = uuid.UUID(batch["batch_id"]).bytes
        epoch_id = batch.get("epoch_id") or 0
        rows = [row_of(device_id, epoch_id, record) for record in batch["records"]]
        newest = max(rows, key=lambda row: row[2])
        with self.lock:
            execute = self.conn.execute
            execute("BEGIN IMMEDIATE")
            try:
                if execute(KNOWN, (device_id, batch_id)).fetchone():
                    answer = {"status": "duplicate", "accepted": 0}
                else:
                    execute(REMEMBER, (device_id, batch_id, body_hash, now))
                    accepted = self.conn.executemany(APPEND, rows).rowcount
                    moved = execute(SWAP, (*newest[:7], now)).rowcount == 1
                    answer = {"status": "processed", "accepted": accepted, "applied": moved}
                execute("COMMIT")
            except BaseException:
                self.conn.rollback()
                raise
        return answer


def row_of(device_id, epoch_id, record):
    extra = {key: value for key, value in record.items() if key not in NAMED}
    return (
        device_id,
        epoch_id,
        int(record["seq"]),
        record.get("recorded_at"),
        record.get("lat"),
        record.get("lon"),
        record.get("battery"),
        json.dumps(extra) if extra else None,
    )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one packet
    store = None
    fleet_key = b""
    keys = {}

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        device_id = self.headers.get("X-Device-Id", "")
        offered = self.headers.get("X-Signature", "").removeprefix("sha256=")
        if not hmac.compare_digest(hmac.new(self.key(device_id), body, hashlib.sha256).hexdigest(), offered):
            return self.answer(401, {"title": "Unauthorized"})
        try:
            batch = json.loads(body)
            if batch["device_id"] != device_id:
                raise ValueError("another device")
            receipt = self.store.commit(device_id, batch, hashlib.sha256(body).digest()[:16])
        except (ValueError, KeyError, TypeError):
            return self.answer(400, {"title": "Bad Request"})
        except sqlite3.Error:
            return self.answer(503, {"title": "Service Unavailable"})
        return self.answer(200, receipt)

    def key(self, device_id):
        key = self.keys.get(device_id)
        if key is None:
            key = hmac.new(self.fleet_key, device_id.encode(), hashlib.sha256).digest()
            self.keys[device_id] = key
        return key

    def answer(self, status, body):
        data = json.dumps(body, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


def main():
    Handler.store = Store(sys.argv[1])
    Handler.fleet_key = os.environ["TIDEGATE_FLEET_KEYS"].encode()
    server = Server(("127.0.0.1", 0), Handler)
    print(f"listening on http://127.0.0.1:{server.server_address[1]}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
