// Runs tidegate_tracker.py under MicroPython's WebAssembly build against a real gateway:
//
//     node run.mjs HOST PORT DEVICE KEY MAKE
//
// There are no sockets in WebAssembly, so the link is bridged: a worker has the socket, and this thread, in which
// Python runs and which must not return before Python does, waits for it on shared memory. The buffer is a file in
// the module's memory. Half-way the tracker is thrown away and made anew on that file, as after a restart.
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { loadMicroPython } from '@micropython/micropython-webassembly-pyscript/micropython.mjs';

const [host, port, device, key, make] = process.argv.slice(2);
const REPLY_MAX = 4096;
// state, length, then the bytes; the state is 0 while the worker is at work.
const shared = new SharedArrayBuffer(8 + REPLY_MAX);
const numbers = new Int32Array(shared, 0, 2);
const worker = new Worker(new URL('./link.mjs', import.meta.url), { workerData: { host, port: Number(port), shared } });

// Gives what the worker replied as hex, null where the link is broken.
function ask(what, value, waitMs) {
    Atomics.store(numbers, 0, 0);
    worker.postMessage({ what, value, waitMs });
    if (Atomics.wait(numbers, 0, 0, waitMs + 10_000) === 'timed-out') throw new Error('the worker is gone');
    const [state, length] = numbers;
    return state === 1 ? Buffer.from(new Uint8Array(shared, 8, length)).toString('hex') : null;
}
globalThis.tidegateLink = ask;

const mp = await loadMicroPython({ heapsize: 256 * 1024, stdout: (line) => console.log(line), linebuffer: true });
mp.FS.writeFile('/tidegate_tracker.py', readFileSync(new URL('../tidegate_tracker.py', import.meta.url)));
const code = `
import binascii, js, sys
sys.path.append("/")
import tidegate_tracker as t

class Link:
    def connect(self, wait_ms):
        self._ask("connect", "", wait_ms)
    def send(self, data, wait_ms):
        self._ask("send", binascii.hexlify(data).decode(), wait_ms)
        return len(data)
    def recv(self, length, wait_ms):
        return self._ask("recv", str(length), wait_ms)
    def close(self):
        self._ask("close", "", 1000)
    def _ask(self, what, value, wait_ms):
        reply = js.tidegateLink(what, value, wait_ms)
        if reply is None:
            raise OSError(what)
        return binascii.unhexlify(reply)

def life(make, epoch):
    storage = t.FileStorage("/records.bin", t.store_bytes(512))
    tracker = t.Tracker(storage, Link(), t.Clock(), host="gateway", device_id=${JSON.stringify(device)},
                        key=binascii.a2b_base64(b${JSON.stringify(key)}), slots=512, epoch=epoch, batch_max=8,
                        idle_ms=4000, backoff_ms=2, backoff_max_ms=20)
    return storage, tracker

print(sys.implementation[0], "packs:", t.pack(b"x" * 100) is not None)
# The first life ends with a batch in flight.
storage, tracker = life(0, 11)
while tracker.buffer.head < ${Number(make)} // 2:
    t.measure(tracker)
while tracker.step()[0] == t.ACKED:
    pass
print("left in flight:", tracker.buffer.span)
tracker.close()
storage.close()
storage, tracker = life(0, 12)
code = t.sail(tracker, ${Number(make)})
print("code", code)
`;
try {
    mp.runPython(code);
} catch (error) {
    // The whole minified module would stand in a stack trace.
    console.error(error.message);
    process.exitCode = 1;
} finally {
    await worker.terminate();
}
