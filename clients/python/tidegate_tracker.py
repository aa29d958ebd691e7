"""A reference tracker for Tidegate: a buffer of position records in non-volatile storage, and their upload.

One file for MicroPython and CPython 3, without any module that MicroPython lacks. It keeps the same buffer as the
tracker in C (clients/README.md has the format) and makes the same plain bodies of it, byte for byte.

    storage = FileStorage("records.bin", store_bytes(4096))
    tracker = Tracker(storage, SocketLink("gateway.example", 8080), Clock(), host="gateway.example:8080",
                      device_id="buoy-1", key=binascii.a2b_base64(b"..."), slots=4096)
    tracker.record(recorded_at=1774930320, lat_e7=213069000, lon_e7=-1578583000, battery_mv=3820)
    did, status, wait_ms = tracker.step()   # at most one upload; call again after wait_ms
"""

import binascii
import hashlib
import os
import random
import struct
import sys
import time

BLOCK = 4096
SLOT = 32
HEADER = 64
MAGIC = b"TGs1"
NO_FIX = -(1 << 31)
NO_SPEED = 0xFFFF
# 2020-01-01: a clock that says less was never set.
CLOCK_MIN = 1577836800
# All heads and the body of an answer together, and 1xx answers before the final one.
ANSWER_MAX = 8192
INTERIM_MAX = 8
LINE_MAX = 256
# A day: what a Retry-After can do to a tracker at most.
RETRY_MAX_S = 86400

# What a step did.
IDLE = "idle"  # nothing to send
ACKED = "acknowledged"  # a batch arrived and left the buffer
WAITING = "waiting"  # called before the wait was over: nothing was done
UNANSWERED = "no answer"  # the same bytes will go out again
BUSY = "busy"  # likewise; the gateway said when
SPLIT = "split"  # the batch was too large and is now two
REFUSED = "refused"  # needs a person: wrong key or device (401), wrong address, one record over the limit (413)
STORE_FAILED = "storage failed"  # needs a person


def store_bytes(slots):
    """Bytes of storage for a buffer of so many records."""
    return 2 * BLOCK + slots * SLOT


class NeedEpoch(Exception):
    """The storage is new, and neither clock nor configuration can tell it from an older life."""


class BadLayout(Exception):
    """The storage holds a buffer of another size."""


class Broken(Exception):
    """No answer, or none that can be read."""


# ---- The port: storage, network, clock ----


class FileStorage:
    """Storage in a file. After `write` what was written survives a power cut."""

    def __init__(self, path, size):
        try:
            self.file = open(path, "r+b")
        except OSError:
            self.file = open(path, "w+b")
        # Not every file system can write behind a file's end.
        self.file.seek(0, 2)
        missing = size - self.file.tell()
        while missing > 0:
            missing -= self.file.write(bytes(min(missing, 512)))
        self._sync()

    def read(self, offset, length):
        self.file.seek(offset)
        return self.file.read(length)

    def write(self, offset, data):
        self.file.seek(offset)
        self.file.write(data)
        self._sync()

    def _sync(self):
        self.file.flush()
        if hasattr(os, "fsync"):
            os.fsync(self.file.fileno())
        elif hasattr(os, "sync"):
            os.sync()

    def close(self):
        self.file.close()


class SocketLink:
    """One TCP connection. Faults and time-outs are OSError."""

    def __init__(self, host, port):
        self.host, self.port, self.socket = host, port, None

    def connect(self, wait_ms):
        # Here, since not every build of MicroPython has it.
        import socket

        found = socket.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM)[0]
        self.socket = socket.socket(found[0], found[1], found[2])
        self.socket.settimeout(wait_ms / 1000)
        self.socket.connect(found[-1])

    def send(self, data, wait_ms):
        self.socket.settimeout(wait_ms / 1000)
        return self.socket.send(data)

    def recv(self, length, wait_ms):
        self.socket.settimeout(wait_ms / 1000)
        return self.socket.recv(length)

    def close(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = None


class Clock:
    """Time that only rises, time of day, and chance for spreading retries."""

    def ms(self):
        return time.ticks_ms() if hasattr(time, "ticks_ms") else int(time.monotonic() * 1000)

    def since(self, ms):
        return time.ticks_diff(time.ticks_ms(), ms) if hasattr(time, "ticks_ms") else self.ms() - ms

    def unix(self):
        """Unix seconds. Some ports of MicroPython count from 2000."""
        return int(time.time()) + (946684800 if time.gmtime(0)[0] == 2000 else 0)

    def below(self, bound):
        return random.getrandbits(30) % bound if bound > 0 else 0

    def sleep_ms(self, ms):
        time.sleep(ms / 1000)


# ---- Text, compression, signature ----


def decimal(number, digits):
    """number / 10**digits, as short as it can be."""
    sign = "-" if number < 0 else ""
    scale = 10**digits
    whole, part = abs(number) // scale, abs(number) % scale
    if part == 0:
        return "%s%d" % (sign, whole)
    text = str(part + scale)[1:]
    return "%s%d.%s" % (sign, whole, text.rstrip("0"))


def pack(data):
    """zlib (RFC 1950) with a window of 1 KiB; None where this build cannot compress."""
    try:
        import deflate
        import io
    except ImportError:
        import zlib

        packer = zlib.compressobj(9, zlib.DEFLATED, 10, 2)
        packed = packer.compress(data) + packer.flush()
    else:
        try:
            out = io.BytesIO()
            packer = deflate.DeflateIO(out, deflate.ZLIB, 10)
            packer.write(data)
            packer.close()
            packed = out.getvalue()
        except (AttributeError, OSError):
            return None
    # "Up to 32 KiB of window", which is no less true and the only header that every reader knows.
    return b"\x78\xda" + packed[2:]


def hmac_sha256(key, message):
    """RFC 2104, for keys up to 64 bytes: MicroPython's core has no hmac."""
    key = key + bytes(64 - len(key))
    inner = hashlib.sha256(bytes([byte ^ 0x36 for byte in key]))
    inner.update(message)
    outer = hashlib.sha256(bytes([byte ^ 0x5C for byte in key]))
    outer.update(inner.digest())
    return outer.digest()


def base64(data):
    """Without padding: each byte costs, and a gateway takes both."""
    return binascii.b2a_base64(data).decode().strip().rstrip("=")


def is_device_id(text):
    plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"
    return 1 <= len(text) <= 64 and text not in (".", "..") and all([c in plain for c in text])


# ---- The buffer ----


class Buffer:
    """The ring of records. A record's slot is seq modulo slots, so the slots say by themselves which seq comes next.

    The header is written when a batch is chosen and when it is acknowledged, and repeats the next seq: whatever
    happens to a slot later, a seq that may have been sent is never given out again.
    """

    def __init__(self, storage, slots, epoch, clock):
        self.storage, self.slots = storage, slots
        self.generation = self.epoch = self.head = self.tail = self.span = 0
        self.overwritten = self.unreadable = 0
        if self._load():
            self.head = max(self.head, self._scan()[0])
            self._forget()
        else:
            self._begin(epoch, clock.unix())

    def _load(self):
        newest = None
        for copy in (0, 1):
            header = self.storage.read(copy * BLOCK, HEADER)
            if len(header) != HEADER or header[:4] != MAGIC:
                continue
            if struct.unpack("<I", header[60:])[0] != binascii.crc32(header[:60]):
                continue
            fields = struct.unpack("<IIIQQIII", header[4:44])
            if newest is None or fields[0] > newest[0]:
                newest = fields
        if newest is None:
            return False
        self.generation, slots, self.epoch, self.head, self.tail, self.span = newest[:6]
        self.overwritten, self.unreadable = newest[6:]
        if slots != self.slots:
            raise BadLayout("the storage has %d slots" % slots)
        return True

    def _begin(self, epoch, now):
        """New storage, or storage that lost both headers: a new life, whose epoch must be above all before it."""
        before = self._scan()[1]
        self.epoch = epoch if epoch > 0 else now if now >= CLOCK_MIN else 0
        if self.epoch == 0:
            raise NeedEpoch("set the clock or give an epoch")
        # Slots can outlive the headers.
        self.epoch = max(self.epoch, min(before + 1, 0xFFFFFFFF))
        self.save()
        self.save()

    def save(self):
        """The copies take turns, so that a torn write leaves the one before it."""
        generation = self.generation + 1
        fields = (generation, self.slots, self.epoch, self.head, self.tail, self.span)
        header = MAGIC + struct.pack("<IIIQQIII", *(fields + (self.overwritten, self.unreadable))) + bytes(16)
        self.storage.write(generation % 2 * BLOCK, header + struct.pack("<I", binascii.crc32(header)))
        self.generation = generation

    def _slot(self, index):
        """(epoch, seq, fields) of a slot, None where it holds no record."""
        slot = self.storage.read(2 * BLOCK + index * SLOT, SLOT)
        if len(slot) != SLOT or struct.unpack("<I", slot[:4])[0] != binascii.crc32(slot[4:]):
            return None
        fields = struct.unpack("<IQIiiHH", slot[4:])
        return fields[0], fields[1], fields[2:]

    def _scan(self):
        """The seq behind the greatest one of this epoch, and the greatest epoch of any slot."""
        head = epoch_max = 0
        for index in range(self.slots):
            found = self._slot(index)
            if found is None:
                continue
            epoch_max = max(epoch_max, found[0])
            if found[0] == self.epoch and found[1] % self.slots == index:
                head = max(head, found[1] + 1)
        return head, epoch_max

    def _forget(self):
        """What a full ring has forgotten, and the batch in flight if that was part of it."""
        oldest = self.head - self.slots
        if self.tail < oldest:
            self.overwritten += oldest - self.tail
            self.tail, self.span = oldest, 0

    def add(self, recorded_at, lat_e7, lon_e7, battery_mv, speed_dkn):
        if not (-900000000 <= lat_e7 <= 900000000 and -1800000000 <= lon_e7 <= 1800000000):
            lat_e7, lon_e7 = NO_FIX, 0
        fields = (self.epoch, self.head, recorded_at, lat_e7, lon_e7, battery_mv, speed_dkn)
        slot = struct.pack("<IQIiiHH", *fields)
        slot = struct.pack("<I", binascii.crc32(slot)) + slot
        self.storage.write(2 * BLOCK + self.head % self.slots * SLOT, slot)
        self.head += 1
        self._forget()
        return self.head - 1

    def get(self, seq):
        """The fields of a record, None where its slot does not hold it."""
        found = self._slot(seq % self.slots)
        return found[2] if found is not None and found[:2] == (self.epoch, seq) else None

    def waiting(self):
        return self.head - self.tail


# ---- The answer ----


def _digits(text):
    """Whether the text is decimal digits and nothing else; CPython's isdigit() takes a superscript two for one."""
    return text != "" and all(c in "0123456789" for c in text)


class Answer:
    """Reads an HTTP answer, in memory that does not depend on what comes.

    The status decides. Of the body only the start matters: it tells a gateway's receipt from the page of a captive
    portal. Deleting records because an access point said "200 OK" would lose them.
    """

    def __init__(self, recv):
        self.recv, self.held, self.seen = recv, b"", 0
        self.status, self.retry_s, self.length = 0, None, None
        self.chunked = self.closes = False
        self.body = b""

    def _byte(self):
        """The next byte, empty where the other side hung up."""
        if not self.held:
            self.held = self.recv(64)
        byte, self.held = self.held[:1], self.held[1:]
        self.seen += len(byte)
        if self.seen > ANSWER_MAX:
            raise Broken("endless")
        return byte

    def _line(self):
        line = b""
        while True:
            byte = self._byte()
            if not byte or byte == b"\0":
                raise Broken("broke off")
            if byte == b"\n":
                break
            if len(line) < LINE_MAX:
                line += byte
        try:
            return line.decode().strip("\r")
        except UnicodeError:
            # Not an empty line, which would end the head.
            return "?"

    def read(self):
        for _ in range(INTERIM_MAX + 1):
            self._status_line()
            self._fields()
            if self.status >= 200:
                break
            if self.status == 101:
                raise Broken("nobody asked for another protocol")
        else:
            raise Broken("endless")
        self._body()
        if self.held:
            self.closes = True

    def _status_line(self):
        words = self._line().split(" ")
        if len(words) < 2 or len(words[0]) != 8 or words[0][:7] != "HTTP/1." or not _digits(words[0][7]):
            raise Broken("no HTTP")
        if len(words[1]) != 3 or not _digits(words[1]) or not 100 <= int(words[1]) < 600:
            raise Broken("no status")
        self.status = int(words[1])
        self.closes = words[0][7] == "0"

    def _fields(self):
        self.length, self.retry_s, self.chunked = None, None, False
        while True:
            line = self._line()
            if not line:
                return
            name, _, value = (line + ":").partition(":")
            name, value = name.lower(), value.rstrip(":").strip()
            if name == "content-length":
                if not _digits(value) or len(value) > 8 or self.length not in (None, int(value)):
                    raise Broken("no length")
                self.length = int(value)
            elif name == "retry-after" and _digits(value) and len(value) <= 8:
                self.retry_s = int(value)
            elif name == "transfer-encoding":
                if "chunked" not in value.lower():
                    raise Broken("an unknown coding")
                self.chunked = True
            elif name == "connection" and "close" in value.lower():
                self.closes = True

    def _body(self):
        if self.status in (204, 304):
            return
        if self.chunked:
            # Where the last chunk ends does not matter: such a connection is not used again.
            self.closes = True
            size = self._line().split(";")[0].strip()
            try:
                self.length = None if int(size, 16) > 0 else 0
            except ValueError:
                raise Broken("no chunk")
        if self.length is None:
            self.closes = True
        # One whose end is known is read to it, of others the start will do.
        left = 10 if self.length is None else self.length
        while left > 0:
            byte = self._byte()
            if not byte and self.length is None and not self.chunked:
                return
            if not byte:
                raise Broken("broke off")
            if len(self.body) < 10:
                self.body += byte
            left -= 1

    def is_ours(self):
        """Whether the body is one that a gateway sends with 200 or 202: none, or a receipt."""
        # An empty body must be said to be empty: one whose connection ended behind the head may have been anything.
        return self.body == b'{"status":' or (self.body == b"" and self.length == 0)


# ---- The tracker ----


class Tracker:
    """Buffer and uploads. `storage`, `link` and `clock` are the port; times are in milliseconds."""

    def __init__(
        self, storage, link, clock, *, host, device_id, key, slots=4096, epoch=0, batch_max=50, body_max=2048,
        plain=False, full_answers=False, connect_ms=60000, idle_ms=120000, exchange_ms=1200000, backoff_ms=5000,
        backoff_max_ms=900000, refused_ms=3600000
    ):
        if not is_device_id(device_id) or not host or any([not "!" <= c <= "~" for c in host]) or len(key) != 32:
            raise ValueError("device_id, host or key cannot be right")
        self.link, self.clock = link, clock
        self.host, self.device_id, self.key = host, device_id, key
        self.batch_max, self.body_max, self.plain, self.full_answers = batch_max, body_max, plain, full_answers
        self.connect_ms, self.idle_ms, self.exchange_ms = connect_ms, idle_ms, exchange_ms
        self.backoff_ms, self.backoff_max_ms, self.refused_ms = backoff_ms, backoff_max_ms, refused_ms
        self.buffer = Buffer(storage, slots, epoch, clock)
        self.request = None  # of the batch in flight
        self.request_of = None  # and which batch that is
        self.records = 0  # in it
        self.connected = False
        self.wait_from, self.wait_ms, self.faults = None, 0, 0
        self.counts = {"uploads": 0, "acked": 0, "unanswered": 0, "foreign": 0, "busy": 0, "refused": 0, "split": 0}

    def record(self, recorded_at=0, lat_e7=NO_FIX, lon_e7=0, battery_mv=0, speed_dkn=NO_SPEED):
        """Stores a record and gives its seq. A full buffer forgets its oldest record."""
        return self.buffer.add(recorded_at, lat_e7, lon_e7, battery_mv, speed_dkn)

    def waiting(self):
        """Records that wait for their acknowledgement."""
        return self.buffer.waiting()

    # -- The batch. Everything follows from storage and configuration, nothing from clock or chance, so the same
    # -- batch is the same bytes after a restart, too.

    def _record_text(self, seq, fields):
        recorded_at, lat_e7, lon_e7, battery_mv, speed_dkn = fields
        text = '{"seq":%d' % seq
        if recorded_at:
            text += ',"recorded_at":%d' % recorded_at
        if lat_e7 != NO_FIX:
            text += ',"lat":%s,"lon":%s' % (decimal(lat_e7, 7), decimal(lon_e7, 7))
        if battery_mv:
            text += ',"battery":%s' % decimal(battery_mv, 3)
        if speed_dkn != NO_SPEED:
            text += ',"speed":%s' % decimal(speed_dkn, 1)
        return text + "}"

    def _body(self, span):
        """The body of so many seqs and how many records are in it; where not all fit, None and how many seqs do."""
        buffer = self.buffer
        text = '{"device_id":"%s","batch_id":"%d-%d-%d","epoch_id":%d,"records":[' % (
            self.device_id, buffer.epoch, buffer.tail, span, buffer.epoch,
        )
        texts = []
        length = len(text) + 2
        for seq in range(buffer.tail, buffer.tail + span):
            fields = buffer.get(seq)
            if fields is None:
                continue
            texts.append(self._record_text(seq, fields))
            length += len(texts[-1]) + (1 if len(texts) > 1 else 0)
            if length > self.body_max:
                return None, seq - buffer.tail
        return (text + ",".join(texts) + "]}").encode(), len(texts)

    def _choose(self):
        """As many records as fit; on the medium before it goes out, or another life might choose another batch."""
        buffer = self.buffer
        span = min(self.batch_max, buffer.waiting())
        body, fit = self._body(span)
        while body is None and span > 1:
            span = max(1, min(fit, span - 1))
            body, fit = self._body(span)
        buffer.span = span
        try:
            buffer.save()
        except OSError:
            buffer.span = 0
            raise

    def _make_request(self):
        buffer = self.buffer
        body = None
        if buffer.span > 0:
            body, self.records = self._body(buffer.span)
        if body is None:
            self._choose()
            body, self.records = self._body(buffer.span)
        if body is None:
            raise OSError("one record does not fit")
        if not self.plain:
            packed = pack(body)
            if packed is not None and len(packed) < len(body):
                body = packed
        head = "POST /v1/batches HTTP/1.1\r\nHost: %s\r\nX-Device-Id: %s\r\nX-Signature: %s\r\n%sContent-Length: %d\r\n\r\n"
        prefer = "" if self.full_answers else "Prefer: return=minimal\r\n"
        signature = base64(hmac_sha256(self.key, body))
        self.request = (head % (self.host, self.device_id, signature, prefer, len(body))).encode() + body
        self.request_of = (buffer.tail, buffer.span)

    # -- The exchange

    def _hang_up(self):
        if self.connected:
            self.link.close()
        self.connected = False

    def _left(self, began):
        left = self.exchange_ms - self.clock.since(began)
        if left <= 0:
            raise Broken("took too long")
        return min(left, self.idle_ms)

    def _exchange_once(self, began, answer):
        if not self.connected:
            # Before it, so that a half-made connection is closed, too.
            self.connected = True
            self.link.connect(self.connect_ms)
        at = 0
        while at < len(self.request):
            sent = self.link.send(self.request[at:], self._left(began))
            if not sent:
                raise Broken("hung up")
            at += sent
        answer.read()

    def _exchange(self):
        """The answer, or None."""
        began = self.clock.ms()
        kept = self.connected
        while True:
            self.counts["uploads"] += 1
            answer = Answer(lambda length: self.link.recv(length, self._left(began)))
            try:
                self._exchange_once(began, answer)
                break
            except (OSError, Broken):
                self._hang_up()
            # A kept connection may have ended meanwhile: a fresh one is worth one try at once.
            if not kept or answer.seen > 0:
                return None
            kept = False
        if answer.closes:
            self._hang_up()
        return answer

    # -- What becomes of the batch

    def _wait(self, did, status, wait_ms):
        self.wait_from, self.wait_ms = self.clock.ms(), wait_ms
        # Nobody keeps a satellite modem on while waiting.
        if wait_ms > 0:
            self._hang_up()
        return did, status, wait_ms

    def _back_off(self, did, status):
        """Exponential with full jitter: a fleet that lost its gateway at once must not come back at once."""
        bound = min(self.backoff_ms << min(self.faults, 24), self.backoff_max_ms)
        self.faults += 1
        return self._wait(did, status, self.clock.below(bound) + 1)

    def _unanswered(self, status):
        self.counts["unanswered"] += 1
        return self._back_off(UNANSWERED, status)

    def _refused(self, status):
        """Repeating does not heal it, and forgetting the records would be worse: ask again now and then."""
        self.counts["refused"] += 1
        return self._wait(REFUSED, status, self.refused_ms + self.clock.below(self.refused_ms // 4))

    def _busy(self, status, retry_s):
        self.counts["busy"] += 1
        if retry_s is None:
            return self._back_off(BUSY, status)
        return self._wait(BUSY, status, min(retry_s, RETRY_MAX_S) * 1000 + self.clock.below(self.backoff_ms))

    def _change(self, tail, span, unreadable):
        """Moves on, in memory only where it is saved: a batch that goes out once more is a duplicate."""
        buffer = self.buffer
        before = (buffer.tail, buffer.span, buffer.unreadable)
        buffer.tail, buffer.span, buffer.unreadable = tail, span, unreadable
        try:
            buffer.save()
        except OSError:
            buffer.tail, buffer.span, buffer.unreadable = before
            raise

    def _leave_behind(self):
        buffer = self.buffer
        self._change(buffer.tail + buffer.span, 0, buffer.unreadable + buffer.span - self.records)

    def _decide(self, answer):
        status = 0 if answer is None else answer.status
        if status in (200, 202):
            if not answer.is_ours():
                self.counts["foreign"] += 1
                self._hang_up()
                return self._unanswered(status)
            self._leave_behind()
            self.counts["acked"] += 1
            self.faults = 0
            if self.buffer.waiting() == 0:
                self._hang_up()
            return self._wait(ACKED, status, 0)
        if status == 413 and self.buffer.span > 1:
            # Half of it is another batch under another id, since the count is part of the id.
            self._change(self.buffer.tail, (self.buffer.span + 1) // 2, self.buffer.unreadable)
            self.counts["split"] += 1
            return self._wait(SPLIT, status, 0)
        if status in (429, 503):
            return self._busy(status, answer.retry_s)
        if status in (0, 400, 408) or status >= 500:
            return self._unanswered(status)
        return self._refused(status)

    def step(self):
        """Uploads the batch in flight, or the next one, once: (what it did, status of the answer, wait in ms)."""
        if self.wait_from is not None:
            passed = self.clock.since(self.wait_from)
            if passed < self.wait_ms:
                return WAITING, 0, self.wait_ms - passed
        self.wait_from = None
        try:
            while self.request is None or self.request_of != (self.buffer.tail, self.buffer.span):
                if self.buffer.waiting() == 0:
                    return IDLE, 0, 0
                self._make_request()
                if self.records == 0:
                    # Slots that do not read back are passed over.
                    self._leave_behind()
            return self._decide(self._exchange())
        except OSError:
            return self._back_off(STORE_FAILED, 0)

    def close(self):
        self._hang_up()


# ---- An example: makes up a course and delivers it, and goes on where it was when it is started again ----

USAGE = """usage: tidegate_tracker.py --to HOST:PORT --device ID --key BASE64 --store FILE [options]
  --make N            records to make in the life of the buffer, then deliver and end (100)
  --every-ms N        rest between two records (0)
  --slots N           records the buffer holds (4096)
  --epoch N           epoch of a new buffer (the clock's Unix seconds)
  --batch N           most records an upload (50)
  --plain             do not compress
  --full-answers      let the gateway send receipts
  --idle-ms N         longest silence of the link (120000)
  --backoff-ms N      first bound of the wait after a fault (5000)
  --backoff-max-ms N  last bound of it (900000)
Ends with 0 when all is delivered, 1 on a fault of its own, 2 on wrong arguments, 3 when the gateway refuses.
"""


def measure(tracker):
    """Records what a receiver would say at this seq."""
    n = tracker.buffer.head % 30000
    lat_e7, lon_e7 = 213069000 - 12345 * n, -1578583000 + 23456 * n
    if n % 10 == 9:
        lat_e7, lon_e7 = NO_FIX, 0
    recorded_at = 0 if n % 50 == 49 else 1774930320 + 60 * n
    speed = NO_SPEED if tracker.buffer.head % 7 == 0 else 30 + n % 60
    return tracker.record(recorded_at, lat_e7, lon_e7, 4100 - n % 700, speed)


def sail(tracker, make, every_ms=0, say=print):
    """Makes and delivers, an upload whenever there are records for a whole batch. Gives the exit code."""
    buffer = tracker.buffer
    say("epoch %d, next seq %d, %d waiting" % (buffer.epoch, buffer.head, buffer.waiting()))
    while buffer.head < make or buffer.waiting() > 0:
        did, status, wait_ms = IDLE, 0, 0
        if buffer.head < make:
            measure(tracker)
            tracker.clock.sleep_ms(every_ms)
        if buffer.head >= make or buffer.waiting() >= tracker.batch_max:
            did, status, wait_ms = tracker.step()
        if did not in (IDLE, WAITING):
            say("%s (status %d), %d waiting" % (did, status, buffer.waiting()))
        if did == REFUSED:
            return 3
        if did == STORE_FAILED:
            return 1
        if buffer.head >= make and wait_ms > 0:
            tracker.clock.sleep_ms(wait_ms)
    say(
        "uploads %(uploads)d, acknowledged %(acked)d, no answer %(unanswered)d, busy %(busy)d, split %(split)d"
        % tracker.counts + ", overwritten %d, unreadable %d" % (buffer.overwritten, buffer.unreadable)
    )
    return 0


def main(arguments):
    numbers = {"make": 100, "every-ms": 0, "slots": 4096, "epoch": 0, "batch": 50, "idle-ms": 120000,
               "backoff-ms": 5000, "backoff-max-ms": 900000}
    options = {"plain": False, "full-answers": False}
    options.update(numbers)
    try:
        while arguments:
            name = arguments.pop(0)[2:]
            if name in ("plain", "full-answers"):
                options[name] = True
            elif name in numbers:
                options[name] = int(arguments.pop(0))
            elif name in ("to", "device", "key", "store"):
                options[name] = arguments.pop(0)
            else:
                raise ValueError(name)
        host, port = options["to"].rsplit(":", 1)
        link = SocketLink(host, int(port))
        key = binascii.a2b_base64(options["key"].encode())
        path, device_id = options["store"], options["device"]
        if len(key) != 32:
            raise ValueError("a key has 32 bytes")
    except (KeyError, IndexError, ValueError):
        sys.stderr.write(USAGE)
        return 2
    try:
        storage = FileStorage(path, store_bytes(options["slots"]))
        tracker = Tracker(
            storage, link, Clock(), host=options["to"], device_id=device_id, key=key, slots=options["slots"],
            epoch=options["epoch"], batch_max=options["batch"], plain=options["plain"],
            full_answers=options["full-answers"], idle_ms=options["idle-ms"], backoff_ms=options["backoff-ms"],
            backoff_max_ms=options["backoff-max-ms"]
        )
    except (OSError, ValueError, BadLayout, NeedEpoch) as fault:
        sys.stderr.write("cannot start: %s\n" % fault)
        return 1
    code = sail(tracker, options["make"], options["every-ms"])
    tracker.close()
    storage.close()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
