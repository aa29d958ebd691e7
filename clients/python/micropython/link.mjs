// The worker behind run.mjs: one socket, asked for one thing at a time.
import { connect } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

const { host, port, shared } = workerData;
const numbers = new Int32Array(shared, 0, 2);
const bytes = new Uint8Array(shared, 8);
let socket = null;
let held = Buffer.alloc(0);
let ended = false;
let broken = false;
let changed = () => {};

function reply(state, data = Buffer.alloc(0)) {
    bytes.set(data);
    numbers[1] = data.length;
    Atomics.store(numbers, 0, state);
    Atomics.notify(numbers, 0);
}

function open(whenOpen) {
    held = Buffer.alloc(0);
    ended = broken = false;
    socket = connect({ host, port, noDelay: true }, whenOpen);
    socket.on('data', (data) => { held = Buffer.concat([held, data]); changed(); });
    socket.on('end', () => { ended = true; changed(); });
    socket.on('error', () => { broken = true; changed(); });
}

// Replies as soon as `ready` says how, or that the link is broken.
function when(ready, waitMs) {
    let timer = null;
    const done = (state, data) => {
        clearTimeout(timer);
        changed = () => {};
        reply(state, data);
    };
    timer = setTimeout(() => done(2), waitMs);
    changed = () => {
        const data = ready();
        if (data !== null) done(1, data);
        else if (broken) done(2);
    };
    changed();
}

parentPort.on('message', ({ what, value, waitMs }) => {
    if (what === 'connect') {
        let isOpen = false;
        open(() => { isOpen = true; changed(); });
        when(() => (isOpen ? Buffer.alloc(0) : null), waitMs);
    } else if (what === 'send') {
        socket.write(Buffer.from(value, 'hex'));
        when(() => Buffer.alloc(0), waitMs);
    } else if (what === 'recv') {
        when(() => {
            if (held.length === 0) return ended ? held : null;
            const piece = held.subarray(0, Number(value));
            held = held.subarray(piece.length);
            return piece;
        }, waitMs);
    } else {
        socket?.destroy();
        socket = null;
        reply(1);
    }
});
