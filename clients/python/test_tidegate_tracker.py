"""Tests of tidegate_tracker.py: python3 -m unittest. A port of memory whose power can fail at any byte, and a gateway
that says what a test tells it to."""

import ast
import hashlib
import hmac
import json
import os
import tempfile
import unittest
import zlib

import tidegate_tracker as t

# Of these MicroPython has all but zlib, which is CPython's stand-in for its deflate.
ALLOWED = {"binascii", "deflate", "hashlib", "io", "os", "random", "socket", "struct", "sys", "time", "zlib"}

SLOTS = 16
KEY = bytes(range(32))
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Memory:
    """Storage whose power fails after so many written bytes."""

    def __init__(self):
        self.data = bytearray(t.store_bytes(SLOTS))
        self.power = None

    def read(self, offset, length):
        return bytes(self.data[offset : offset + length])

    def write(self, offset, data):
        whole = len(data) if self.power is None else min(self.power, len(data))
        self.data[offset : offset + whole] = data[:whole]
        if self.power is not None:
            self.power -= whole
            if whole < len(data) or self.power == 0:
                raise OSError("no power")


class World:
    """Link and clock."""

    def __init__(self):
        self.answers, self.now, self.time, self.chance = [], 0, 1774930320, 0
        self.requests, self.connects, self.held, self.request = [], 0, None, b""

    def connect(self, wait_ms):
        self.connects += 1
        self.request, self.held = b"", None

    def send(self, data, wait_ms):
        assert wait_ms > 0
        if self.held is not None:
            self.request, self.held = b"", None
        self.request += bytes(data[:100])
        return min(len(data), 100)

    def recv(self, length, wait_ms):
        assert wait_ms > 0
        if self.held is None:
            self.requests.append(self.request)
            self.held = self.answers.pop(0) if self.answers else b""
        piece, self.held = self.held[:length], self.held[length:]
        return piece

    def close(self):
        pass

    def ms(self):
        return self.now

    def since(self, ms):
        return self.now - ms

    def unix(self):
        return self.time

    def below(self, bound):
        return self.chance % bound if bound else 0

    def body(self):
        return self.requests[-1].split(b"\r\n\r\n", 1)[1]


class Case(unittest.TestCase):
    def setUp(self):
        self.storage, self.world = Memory(), World()
        self.open()

    def open(self, **more):
        """A tracker on the storage as it is: after the first time as after a power cut."""
        config = {"host": "gateway", "device_id": "buoy-1", "key": KEY, "slots": SLOTS, "epoch": 7, "batch_max": 4,
                  "plain": True, "backoff_ms": 1000, "backoff_max_ms": 8000}
        config.update(more)
        self.tracker = t.Tracker(self.storage, self.world, self.world, **config)

    def measure(self, start, stop):
        for number in range(start, stop):
            self.tracker.record(number, 213069000, -1578583000, 3820)

    def step(self, *answers):
        self.world.answers = list(answers)
        return self.tracker.step()

    def batch(self):
        return json.loads(self.world.body())


class Text(Case):
    def test_only_modules_that_micropython_has(self):
        with open(t.__file__) as file:
            tree = ast.parse(file.read())
        named = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                named.add(node.module)
            self.assertNotIsInstance(node, (ast.JoinedStr, ast.AnnAssign, ast.AsyncFunctionDef))
        self.assertEqual(named - ALLOWED, set())
        self.assertIn("hashlib", named)

    def test_numbers_are_as_short_as_can_be(self):
        for number, digits, text in [
            (213069000, 7, "21.3069"), (-1578583000, 7, "-157.8583"), (-1, 7, "-0.0000001"), (0, 7, "0"),
            (-900000000, 7, "-90"), (3820, 3, "3.82"), (5, 1, "0.5"), (10050, 3, "10.05"),
        ]:
            self.assertEqual(t.decimal(number, digits), text)

    def test_hmac_is_the_library_s(self):
        for length in (0, 1, 63, 64, 65, 3000):
            message = bytes(length)
            self.assertEqual(t.hmac_sha256(KEY, message), hmac.new(KEY, message, hashlib.sha256).digest())

    def test_the_request_is_what_http_needs(self):
        self.tracker.record(9, -900000000, 1, 3820, 45)
        self.tracker.record(0, 900000001, 0)
        self.assertEqual(self.step(OK), (t.ACKED, 200, 0))
        body = (
            b'{"device_id":"buoy-1","batch_id":"7-0-2","epoch_id":7,"records":['
            b'{"seq":0,"recorded_at":9,"lat":-90,"lon":0.0000001,"battery":3.82,"speed":4.5},{"seq":1}]}'
        )
        signature = t.base64(hmac.new(KEY, body, hashlib.sha256).digest()).encode()
        self.assertEqual(len(signature), 43)
        head = (
            b"POST /v1/batches HTTP/1.1\r\nHost: gateway\r\nX-Device-Id: buoy-1\r\nX-Signature: " + signature
            + b"\r\nPrefer: return=minimal\r\nContent-Length: 155\r\n\r\n"
        )
        self.assertEqual(self.world.requests, [head + body])
        self.assertEqual(self.step(), (t.IDLE, 0, 0))

    def test_packed_bodies_unpack_to_the_plain_ones(self):
        self.measure(0, 4)
        self.step()
        plain = self.world.body()
        self.open(plain=False)
        self.step()
        self.assertLess(len(self.world.body()), len(plain))
        self.assertEqual(zlib.decompress(self.world.body()), plain)
        self.assertEqual(self.world.body()[:2], b"\x78\xda")

    def test_bodies_are_full_and_within_their_bound(self):
        # With ids of every length, so that each byte of a body is once the one that is too much.
        for length in range(1, 65):
            self.setUp()
            self.storage = Memory()
            self.open(batch_max=65535, body_max=600, device_id="a" * length)
            for _ in range(SLOTS):
                self.tracker.record(0xFFFFFFFF, -899999999, -1799999999, 65535, 65534)
            while self.tracker.waiting():
                self.assertEqual(self.step(OK)[0], t.ACKED)
                body = self.world.body()
                self.assertLessEqual(len(body), 600)
                # One more would be a comma and as much as the last one here. A byte may stay empty: the count in
                # the id had two digits when records were tried.
                if self.tracker.waiting():
                    self.assertGreater(len(body) + len(body) - body.rindex(b"{"), 600)

    def test_bytes_behind_an_answer_end_the_connection(self):
        self.measure(0, 8)
        self.assertEqual(self.step(OK + b"HTTP/1.1 200 OK\r\n")[0], t.ACKED)
        self.assertFalse(self.tracker.connected)

    def test_wrong_configurations_are_refused(self):
        for wrong in ({"device_id": "a b"}, {"device_id": "a" * 65}, {"device_id": ".."}, {"host": "x\r\nY: z"}, {"key": b"k"}):
            with self.assertRaises(ValueError):
                self.open(**wrong)
        with self.assertRaises(t.BadLayout):
            self.open(slots=8)


class Answers(Case):
    def read(self, data, piece=64):
        at = [0]

        def recv(length):
            start = at[0]
            at[0] += min(piece, length)
            return data[start : at[0]]

        answer = t.Answer(recv)
        answer.read()
        return answer

    def test_answers(self):
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        receipt = b'{"status":"processed"}'
        for data, status, closes, ours in [
            (OK, 200, False, True),
            (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, False, True),
            (b"HTTP/1.1 202 Accepted\ncontent-LENGTH:\t0 \n\n", 202, False, True),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, True, True),
            (b"HTTP/1.1 200 OK\r\nConnection: Upgrade, Close\r\nContent-Length: 0\r\n\r\n", 200, True, True),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n" + receipt, 200, False, True),
            (chunked + b"16\r\n" + receipt + b"\r\n0\r\n\r\n", 200, True, True),
            (chunked + b"000;x=y\r\n\r\n", 200, True, True),
            (b"HTTP/1.1 200 OK\r\n\r\n" + receipt, 200, True, True),
            (b"HTTP/1.1 204 No Content\r\n\r\n", 204, False, False),
            (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, False, True),
            (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300 + b"\r\nContent-Length: 0\r\n\r\n", 200, False, True),
            (b"HTTP/1.1 200 OK\r\nX: \xff\r\nContent-Length: 0\r\n\r\n", 200, False, True),
            # A portal's page under the status that would delete records.
            (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", 200, False, False),
            (b"HTTP/1.1 200 OK\r\n\r\n<html>", 200, True, False),
            # One that died behind its head.
            (b"HTTP/1.1 200 OK\r\n\r\n", 200, True, False),
            (chunked + b"6\r\n<html>\r\n0\r\n\r\n", 200, True, False),
        ]:
            for piece in (1, 7, 64):
                answer = self.read(data, piece)
                self.assertEqual((answer.status, answer.is_ours()), (status, ours), data)
                if piece == 1:
                    self.assertEqual(answer.closes, closes, data)

    def test_rubbish(self):
        head = b"HTTP/1.1 200 OK\r\n"
        for data in [
            b"", b"SSH-2.0-x\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 2000 OK\r\n\r\n", b"HTTP/1.1 2 OK\r\n\r\n",
            b"HTTP/1.1 099 x\r\n\r\n", b"HTTP/1.1 999 x\r\n\r\n", b"HTTP/1.1 101 x\r\n\r\n", head + b"Content-Length: 0",
            head + b"Content-Length: 5\r\n\r\nhell", head + b"Content-Length: \xc2\xb2\r\n\r\n", "HTTP/1.1 \u00b2\u00b2\u00b2 x\r\n\r\n".encode(), head + b"Content-Length: -1\r\n\r\n",
            head + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", head + b"Transfer-Encoding: gzip\r\n\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", b"HTTP/1.1 100 x\r\n\r\n" * 9 + OK,
            head + b"X: y\r\n" * 5000, head + b"Content-Length: 99999\r\n\r\n" + b"x" * 99999, head + b"\0\r\n\r\n",
        ]:
            with self.assertRaises(t.Broken, msg=data[:60]):
                self.read(data)


class Decisions(Case):
    def test_each_status_has_its_consequence(self):
        def empty(status, more=""):
            return ("HTTP/1.1 %d x\r\n%sContent-Length: 0\r\n\r\n" % (status, more)).encode()

        for answer, did, least, most in [
            (OK, t.ACKED, 0, 0), (empty(202), t.ACKED, 0, 0),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", t.UNANSWERED, 1, 1000),
            (empty(503, "Retry-After: 30\r\n"), t.BUSY, 30000, 30999), (empty(503), t.BUSY, 1, 1000),
            (empty(503, "Retry-After: 99999999\r\n"), t.BUSY, 86400000, 86400999),
            (empty(429, "Retry-After: 2\r\n"), t.BUSY, 2000, 2999),
            (empty(400), t.UNANSWERED, 1, 1000), (empty(408), t.UNANSWERED, 1, 1000),
            (empty(500), t.UNANSWERED, 1, 1000), (b"rubbish\r\n", t.UNANSWERED, 1, 1000), (b"", t.UNANSWERED, 1, 1000),
            (empty(401), t.REFUSED, 3600000, 4499999), (empty(404), t.REFUSED, 3600000, 4499999),
            (empty(302), t.REFUSED, 3600000, 4499999),
        ]:
            # The ends of each spread: the second is one less than a multiple of all of them.
            for chance, wait_ms in ((0, least), (35999999, most)):
                self.setUp()
                self.world.chance = chance
                self.measure(0, 3)
                self.assertEqual(self.step(answer)[::2], (did, wait_ms), answer)
                self.assertEqual(self.tracker.waiting(), 0 if did == t.ACKED else 3)
                if wait_ms == 0:
                    continue
                # Too early: nothing happens.
                self.world.now += wait_ms - 1
                self.assertEqual(self.step(OK), (t.WAITING, 0, 1))
                self.assertEqual(len(self.world.requests), 1)
                self.world.now += 1
                self.assertEqual(self.step(OK)[0], t.ACKED)

    def test_waits_grow_to_their_bound(self):
        self.world.chance = 7999999
        self.measure(0, 1)
        for most in (1000, 2000, 4000, 8000, 8000):
            self.assertEqual(self.step()[2], most)
            self.world.now += most
        self.assertEqual(self.step(OK)[0], t.ACKED)
        self.measure(1, 2)
        self.assertEqual(self.step()[2], 1000)

    def test_a_batch_too_large_is_halved(self):
        large = b"HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n"
        self.measure(0, 4)
        self.assertEqual((self.step(large)[0], self.batch()["batch_id"]), (t.SPLIT, "7-0-4"))
        self.open()
        self.assertEqual((self.step(large)[0], self.batch()["batch_id"]), (t.SPLIT, "7-0-2"))
        self.assertEqual((self.step(large)[0], self.batch()["batch_id"]), (t.REFUSED, "7-0-1"))
        self.assertEqual(self.tracker.waiting(), 4)

    def test_a_kept_connection_that_ended_is_made_anew_at_once(self):
        self.measure(0, 8)
        self.assertEqual((self.step(OK)[0], self.world.connects), (t.ACKED, 1))
        self.assertEqual((self.step(b"", OK)[0], self.world.connects), (t.ACKED, 2))
        self.assertFalse(self.tracker.connected)


class Power(Case):
    def live(self, seen):
        """Records and uploads in turn; every second answer is lost. Gives how many records are safe."""
        for number in range(20):
            try:
                self.measure(1000 + number, 1001 + number)
            except OSError:
                return number
            if number % 3 == 2:
                self.world.now += 1000000
                before = len(self.world.requests)
                self.step(OK if number % 2 else b"")
                if len(self.world.requests) > before:
                    self.look(seen, number % 2 == 1)
                if self.storage.power == 0:
                    return number + 1
        return 20

    def look(self, seen, acked):
        """Whatever is sent again must be what it was."""
        for record in self.batch()["records"]:
            before = seen.setdefault(record["seq"], [record, False])
            self.assertEqual(before[0], record)
            before[1] = before[1] or acked

    def test_no_power_cut_loses_or_repeats(self):
        cut, ended = 0, False
        while not ended:
            self.setUp()
            seen = {}
            self.storage.power = cut
            safe = self.live(seen)
            ended = self.storage.power > 0
            self.storage.power = None
            self.open()
            self.assertEqual(self.tracker.buffer.epoch, 7)
            self.assertIn(self.tracker.buffer.head, (safe, safe + 1))
            safe = self.tracker.buffer.head
            # Another measurement than the one that was lost may take its seq, unless that was sent.
            self.measure(5000, 5003)
            while self.tracker.waiting():
                self.assertEqual(self.step(OK)[0], t.ACKED)
                self.look(seen, True)
            self.assertEqual(sorted(seq for seq, (_, acked) in seen.items() if acked), list(range(safe + 3)))
            self.assertEqual(self.tracker.buffer.unreadable, 0)
            cut += 1
        self.assertGreater(cut, 1000)

    def test_the_batch_in_flight_survives_a_restart(self):
        self.measure(0, 3)
        self.assertEqual(self.step()[0], t.UNANSWERED)
        before = self.world.requests[-1]
        self.measure(3, 9)
        self.open()
        self.assertEqual(self.step(OK)[0], t.ACKED)
        self.assertEqual(self.world.requests[-1], before)
        self.step(OK)
        self.assertEqual(self.batch()["batch_id"], "7-3-4")

    def harm(self, seq, byte=20):
        self.storage.data[2 * t.BLOCK + seq % SLOTS * t.SLOT + byte] ^= 1

    def test_harmed_slots_are_passed_over_and_counted(self):
        for byte in range(t.SLOT):
            self.setUp()
            self.measure(0, 4)
            self.harm(1, byte)
            self.assertEqual((self.step(OK)[0], self.tracker.waiting()), (t.ACKED, 0))
            self.assertEqual([record["seq"] for record in self.batch()["records"]], [0, 2, 3])
            self.assertEqual(self.tracker.buffer.unreadable, 1)
        # A whole batch of them, and the newest: its seq stands in the header.
        self.setUp()
        self.measure(0, 6)
        for seq in range(4):
            self.harm(seq)
        self.assertEqual((self.step(OK)[0], self.batch()["batch_id"]), (t.ACKED, "7-4-2"))
        self.harm(4)
        self.harm(5)
        self.open()
        self.assertEqual((self.tracker.buffer.head, self.tracker.buffer.unreadable), (6, 4))

    def test_stale_slots_are_not_taken_for_new_ones(self):
        # A write that never reached the medium leaves the record of a lap before, or of a life before.
        slot = slice(2 * t.BLOCK + t.SLOT, 2 * t.BLOCK + 2 * t.SLOT)
        self.measure(0, SLOTS)
        before = self.storage.data[slot]
        while self.tracker.waiting():
            self.step(OK)
        self.measure(SLOTS, SLOTS + 4)
        self.storage.data[slot] = before
        self.assertEqual((self.step(OK)[0], self.tracker.buffer.unreadable), (t.ACKED, 1))
        self.assertEqual([record["seq"] for record in self.batch()["records"]], [16, 18, 19])
        self.storage.data[: 2 * t.BLOCK] = bytes(2 * t.BLOCK)
        self.open()
        self.measure(0, 1)
        self.open()
        self.assertEqual((self.tracker.buffer.epoch, self.tracker.buffer.head), (8, 1))

    def test_a_full_buffer_forgets_its_oldest(self):
        self.measure(0, 3)
        self.step()
        self.measure(3, 18)
        self.assertEqual((self.tracker.waiting(), self.tracker.buffer.overwritten), (SLOTS, 2))
        self.world.now += 1000000
        self.assertEqual((self.step(OK)[0], self.batch()["batch_id"]), (t.ACKED, "7-2-4"))
        self.measure(18, 40)
        self.open()
        self.assertEqual((self.tracker.waiting(), self.tracker.buffer.overwritten), (SLOTS, 20))

    def test_a_new_buffer_begins_a_new_epoch(self):
        self.measure(0, 3)
        # Both headers are lost, and the configuration did not change.
        self.storage.data[: 2 * t.BLOCK] = bytes(2 * t.BLOCK)
        self.open()
        self.assertEqual((self.tracker.buffer.epoch, self.tracker.buffer.head), (8, 0))
        self.storage.data[:] = bytes(len(self.storage.data))
        self.open(epoch=0)
        self.assertEqual(self.tracker.buffer.epoch, 1774930320)
        self.storage.data[:] = bytes(len(self.storage.data))
        self.world.time = 1000
        with self.assertRaises(t.NeedEpoch):
            self.open(epoch=0)

    def test_files_keep_what_was_written(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "records")
            for life in range(3):
                self.storage = t.FileStorage(path, t.store_bytes(SLOTS))
                self.open()
                self.assertEqual(self.tracker.buffer.head, life * 2)
                self.measure(0, 2)
                self.storage.close()
            self.assertEqual(os.stat(path).st_size, t.store_bytes(SLOTS))


if __name__ == "__main__":
    unittest.main()
