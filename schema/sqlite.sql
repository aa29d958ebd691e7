-- Generated: the whole schema that the steps in schema/sqlite/ lead to.

CREATE TABLE store_meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL                  -- mutable
) STRICT, WITHOUT ROWID;

CREATE TABLE fleet_keys (
    fingerprint BLOB PRIMARY KEY            -- first 4 bytes of SHA-256 of the key
) STRICT, WITHOUT ROWID;

CREATE TABLE devices (
    device_ref         INTEGER PRIMARY KEY, -- how other tables name the device
    device_id          TEXT NOT NULL UNIQUE,-- as sent; compared by bytes
    first_contact_at   INTEGER NOT NULL,
    last_contact_at    INTEGER NOT NULL,    -- mutable: every authentic upload
    current_epoch_id   INTEGER NOT NULL,    -- mutable: the greatest epoch that is not void, else 0
    fleet_key          BLOB,                -- mutable: fingerprint of the fleet key it last signed with
    held               INTEGER NOT NULL,    -- mutable: entries marked held
    conflicts          INTEGER NOT NULL,    -- mutable: entries without a mark beyond the first of their key
    quarantined        INTEGER NOT NULL,    -- mutable: open quarantine entries
    quarantined_bytes  INTEGER NOT NULL,    -- mutable: what they weigh, for the cap
    batch_id_reused_at INTEGER,             -- mutable: a known batch id last came with new content
    label              TEXT,                -- mutable: given by ops
    disabled_at        INTEGER              -- mutable: locked out by ops since
) STRICT;

CREATE TABLE epochs (
    device_ref       INTEGER NOT NULL,
    epoch_id         INTEGER NOT NULL,
    opened_at        INTEGER NOT NULL,
    max_logged_seq   INTEGER,               -- mutable: greatest seq of any entry; above it no key can repeat
    max_counting_seq INTEGER,               -- mutable: greatest seq of a counting entry
    voided_at        INTEGER,               -- mutable: voided whole by ops
    guard_window     INTEGER,               -- mutable: the three are null together once the guard fell
    guard_next_seq   INTEGER,
    guard_raised_at  INTEGER,
    PRIMARY KEY (device_ref, epoch_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE processed_batches (
    device_ref  INTEGER NOT NULL,
    batch_id    BLOB NOT NULL,              -- 16 bytes: a UUID; else NUL and the text (NUL behind if that makes 16)
    body_hash   BLOB NOT NULL,              -- mutable: first 16 bytes of SHA-256 of the latest body as sent
    received_at INTEGER NOT NULL,
    epoch_id    INTEGER NOT NULL,           -- mutable: where the records of that body went
    entries     INTEGER NOT NULL,           -- mutable: how many entries it brought
    extra       TEXT,                       -- top-level fields the contract does not name, JSON
    PRIMARY KEY (device_ref, batch_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE telemetry_log (
    row         INTEGER PRIMARY KEY,
    seq         INTEGER NOT NULL,
    recorded_at INTEGER,
    lat         REAL,                       -- degrees WGS 84; null with lon: no fix
    lon         REAL,
    battery     REAL,                       -- volts
    extra       TEXT,                       -- every other field, JSON
    raw         TEXT                        -- optional fields whose value was unusable, JSON
) STRICT;

CREATE TABLE log_spans (
    device_ref  INTEGER NOT NULL,
    epoch_id    INTEGER NOT NULL,
    seq_first   INTEGER NOT NULL,
    first_row   INTEGER NOT NULL,           -- rows first_row … first_row + count - 1
    seq_last    INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    mark        TEXT,                       -- mutable: why its entries do not count: held, void, adopted
    implicit    INTEGER NOT NULL,           -- 1: the batch named no epoch
    received_at INTEGER NOT NULL,
    batch_id    BLOB NOT NULL,
    PRIMARY KEY (device_ref, epoch_id, seq_first, first_row)
) STRICT, WITHOUT ROWID;

CREATE TABLE device_current_state (
    device_ref           INTEGER PRIMARY KEY,
    epoch_id             INTEGER NOT NULL,  -- all mutable
    last_seq             INTEGER NOT NULL,
    recorded_at          INTEGER,
    received_at          INTEGER NOT NULL,
    battery              REAL,
    position_epoch_id    INTEGER,
    position_seq         INTEGER,
    lat                  REAL,
    lon                  REAL,
    position_recorded_at INTEGER,
    revision             INTEGER NOT NULL,  -- counts changes of this row
    cursor               INTEGER NOT NULL,  -- numbers the changes of all rows, in commit order
    corrected            INTEGER NOT NULL   -- 1: the last change was a correction, not a won swap
) STRICT;

CREATE UNIQUE INDEX device_current_state_cursor ON device_current_state (cursor);

CREATE TABLE quarantine (
    id            INTEGER PRIMARY KEY,
    lane          TEXT NOT NULL,
    device_ref    INTEGER NOT NULL,         -- 0: the body names no device
    reason        TEXT NOT NULL,
    detail        TEXT NOT NULL,
    body_hash     BLOB NOT NULL,
    body          BLOB NOT NULL,            -- the body as sent, or the bytes of one record
    record_index  INTEGER,                  -- place of the record in its batch; null: a whole body
    batch_id      BLOB,                     -- where one could be read
    epoch_id      INTEGER NOT NULL,         -- where it would have gone
    implicit      INTEGER NOT NULL,
    first_seen_at INTEGER NOT NULL,
    last_seen_at  INTEGER NOT NULL,         -- mutable
    count         INTEGER NOT NULL,         -- mutable: how often it came
    status        TEXT NOT NULL             -- mutable: open, replayed, discarded
) STRICT;

CREATE UNIQUE INDEX quarantine_body ON quarantine (device_ref, body_hash, reason);

CREATE TABLE audit (
    id         INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    actor      TEXT NOT NULL,               -- a token's name, or device:<id>
    action     TEXT NOT NULL,
    device_ref INTEGER,
    before     TEXT,                        -- JSON
    after      TEXT                         -- JSON
) STRICT;

CREATE VIEW telemetry AS
SELECT d.device_id, s.epoch_id, l.seq, l.recorded_at, s.received_at, l.lat, l.lon, l.battery, l.extra, l.raw,
       s.mark, s.implicit, s.batch_id, l.row
FROM log_spans AS s
JOIN devices AS d ON d.device_ref = s.device_ref
JOIN telemetry_log AS l ON l.row BETWEEN s.first_row AND s.first_row + s.count - 1;
