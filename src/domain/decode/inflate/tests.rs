//! Compressed bodies: whole ones, damaged ones, and bombs.

use std::io::Write as _;

use flate2::write::{GzEncoder, ZlibEncoder};
use flate2::{Compress, Compression, FlushCompress, GzBuilder};

use super::*;

const PACKINGS: [Packing; 3] = [Packing::Gzip, Packing::Zlib, Packing::Zstd];

fn pack(packing: Packing, bytes: &[u8]) -> Vec<u8> {
    match packing {
        Packing::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).expect("memory");
            encoder.finish().expect("memory")
        }
        Packing::Zlib => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(bytes).expect("memory");
            encoder.finish().expect("memory")
        }
        // A stream: the frame's header says nothing of the content's size, and its checksum is there.
        Packing::Zstd => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("memory");
            encoder.include_checksum(true).expect("a setting");
            encoder.write_all(bytes).expect("memory");
            encoder.finish().expect("memory")
        }
    }
}

fn reason(packing: Packing, body: &[u8], max: usize) -> Option<Reason> {
    inflate(packing, body, max).err().map(|fault| fault.reason)
}

/// Whether a body inflates to this content. A comparison that fails shows no megabytes.
fn holds(packing: Packing, body: &[u8], max: usize, content: &[u8]) -> bool {
    inflate(packing, body, max).is_ok_and(|found| found == content)
}

/// Text that neither repeats much nor is noise.
fn text(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'a' + u8::try_from(state >> 28).expect("four bits")
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn whole_bodies_come_out_up_to_the_limit() {
    for packing in PACKINGS {
        for len in [0, 1, 1000, PIECE - 1, PIECE, PIECE + 1, 300_000] {
            for content in [text(len), vec![b'a'; len]] {
                let body = pack(packing, &content);
                assert!(holds(packing, &body, len, &content), "{packing} {len}");
                assert!(
                    holds(packing, &[&body[..], b"\0\0\r\n"].concat(), len + 1, &content),
                    "{packing} {len}"
                );
                let less = len.checked_sub(1).map(|max| reason(packing, &body, max));
                assert!(less.is_none_or(|less| less == Some(Reason::DecodedTooLarge)), "{packing} {len}");
            }
        }
    }
}

#[test]
fn several_streams_are_one_body() {
    let (one, other) = (text(5000), text(70_000));
    let whole = [&one[..], &other].concat();
    for packing in [Packing::Gzip, Packing::Zstd] {
        let body = [pack(packing, &one), pack(packing, b""), pack(packing, &other)].concat();
        assert!(holds(packing, &body, whole.len(), &whole), "{packing}");
        assert_eq!(reason(packing, &body, whole.len() - 1), Some(Reason::DecodedTooLarge), "{packing}");
    }
    // Frames to be skipped, in front and between.
    let skip = b"\x5a\x2a\x4d\x18\x05\0\0\0hello";
    let body = [skip, &pack(Packing::Zstd, &one)[..], skip, &pack(Packing::Zstd, &other), skip].concat();
    assert!(holds(Packing::Zstd, &body, whole.len(), &whole));
    assert_eq!(inflate(Packing::Zstd, skip, 10), Ok(Vec::new()));
    let named = GzBuilder::new().filename("batch.json").comment("c").extra("e").mtime(1);
    let mut named = named.write(Vec::new(), Compression::fast());
    named.write_all(&one).expect("memory");
    assert!(holds(Packing::Gzip, &named.finish().expect("memory"), 5000, &one));
    let two = [pack(Packing::Zlib, b"{}"), pack(Packing::Zlib, b"{}")].concat();
    assert_eq!(reason(Packing::Zlib, &two, 100), Some(Reason::EncodingInvalid), "RFC 1950 has one stream");
}

#[test]
fn what_is_not_whole_is_nothing() {
    let content = text(3000);
    for packing in PACKINGS {
        let body = pack(packing, &content);
        for end in 2..body.len() {
            assert_eq!(
                reason(packing, &body[..end], 1 << 20),
                Some(Reason::EncodingInvalid),
                "{packing} {end}"
            );
        }
        for behind in [&b"x"[..], b"\0x", b"\0\0{}", b"\x1f", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"] {
            let trailing = [&body[..], behind].concat();
            assert_eq!(reason(packing, &trailing, 1 << 20), Some(Reason::EncodingInvalid), "{packing}");
        }
        // The checksum stands at the end, in gzip with the length behind it.
        for back in 1..=if packing == Packing::Gzip { 8 } else { 4 } {
            let mut damaged = body.clone();
            let at = damaged.len() - back;
            damaged[at] ^= 1;
            assert_eq!(reason(packing, &damaged, 1 << 20), Some(Reason::EncodingInvalid), "{packing} {back}");
        }
    }
}

#[test]
fn dictionaries_are_not_taken() {
    // One empty block, behind a header without and with the id of a dictionary (RFC 8878, 3.1.1.1).
    let frame =
        |descriptor: u8, id: &[u8]| [&b"\x28\xb5\x2f\xfd"[..], &[descriptor, 0x58], id, b"\x01\0\0"].concat();
    assert_eq!(inflate(Packing::Zstd, &frame(0, b""), 100), Ok(Vec::new()));
    assert_eq!(inflate(Packing::Zstd, &frame(1, b"\0"), 100), Ok(Vec::new()), "0 is no id");
    for body in [frame(1, b"\x07"), frame(2, b"\x07\x01"), [frame(0, b""), frame(1, b"\x07")].concat()] {
        assert_eq!(reason(Packing::Zstd, &body, 100), Some(Reason::UnsupportedEncoding), "{body:02x?}");
    }
    let zlib = b"\x78\xbb\0\0\0\x07\x01\0\0\xff\xff\0\0\0\x01";
    assert_eq!(reason(Packing::Zlib, zlib, 100), Some(Reason::UnsupportedEncoding));
}

#[test]
fn any_level_and_window_of_zstd_is_taken() {
    let content = text(200_000);
    for level in [-5, 1, 19, 22] {
        let known = zstd::bulk::compress(&content, level).expect("memory");
        assert!(holds(Packing::Zstd, &known, content.len(), &content), "{level}");
    }
    // 128 MiB, what `zstd --ultra -22` announces for a stream.
    let mut stream = zstd::Encoder::new(Vec::new(), 1).expect("memory");
    stream.window_log(27).expect("a setting");
    stream.write_all(&content).expect("memory");
    let body = stream.finish().expect("memory");
    assert_eq!(body[5], 17 << 3, "RFC 8878 3.1.1.1.2: 2^(10+17)");
    assert!(holds(Packing::Zstd, &body, content.len(), &content));
}

/// Blocks that inflate to a mebibyte of zeros and are not the last.
fn deflated_mebibyte() -> Vec<u8> {
    let mut state = Compress::new(Compression::best(), false);
    let mut out = Vec::with_capacity(8 << 10);
    state.compress_vec(&vec![0; 1 << 20], &mut out, FlushCompress::Full).expect("memory");
    assert_eq!(state.total_in(), 1 << 20);
    out
}

/// Bodies that come to 16 GiB or more.
fn bombs() -> Vec<(Packing, Vec<u8>)> {
    let blocks = deflated_mebibyte().repeat(16 << 10);
    let gzip = [&b"\x1f\x8b\x08\0\0\0\0\0\0\xff"[..], &blocks].concat();
    let zlib = [&b"\x78\xda"[..], &blocks].concat();
    // One byte repeated 128 KiB long, 2^17 times: a block of type RLE (1), not the last, takes four bytes. The
    // frame has no size, and a window of 2 GiB.
    let rle = u32::to_le_bytes((128 << 10) << 3 | 1 << 1);
    let block = [rle[0], rle[1], rle[2], 0];
    let last = [rle[0] | 1, rle[1], rle[2], 0];
    let frame = [&b"\x28\xb5\x2f\xfd\x00\xa8"[..], &block.repeat(1 << 17), &last].concat();
    // A frame of one empty block that announces 2^60 bytes.
    let boast = b"\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\0\0\x10\x01\0\0".to_vec();
    // Many streams that are small each.
    let small = |packing| pack(packing, &vec![0; 100_000]).repeat(20_000);
    vec![
        (Packing::Gzip, gzip),
        (Packing::Zlib, zlib),
        (Packing::Zstd, frame),
        (Packing::Zstd, boast),
        (Packing::Gzip, small(Packing::Gzip)),
        (Packing::Zstd, small(Packing::Zstd)),
    ]
}

#[test]
fn bombs_stop_at_the_limit_in_bounded_memory() {
    for (packing, body) in bombs() {
        for max in [0, 1, 1000, 1 << 20, 16 << 20] {
            let mut output = Output { whole: Vec::new(), max, packing };
            let stopped = match packing {
                Packing::Gzip => output.gzip(&body),
                Packing::Zlib => output.zlib(&body),
                Packing::Zstd => output.zstd(&body),
            };
            let reason = stopped.expect_err("a bomb").reason;
            // What boasts of more than it has is damaged, whatever the limit.
            let boasts = body.len() < 20;
            let expected = if boasts { Reason::EncodingInvalid } else { Reason::DecodedTooLarge };
            assert_eq!(reason, expected, "{packing} {max}");
            assert!(output.whole.capacity() <= max + 1, "{packing}: {}", output.whole.capacity());
        }
    }
}

#[test]
fn a_body_has_only_so_many_streams() {
    // Each takes time to begin: a mebibyte of empty ones took seconds.
    for packing in [Packing::Gzip, Packing::Zstd] {
        let empty = pack(packing, b"");
        assert_eq!(inflate(packing, &empty.repeat(PARTS_MAX), 10), Ok(Vec::new()), "{packing}");
        let more = empty.repeat(PARTS_MAX + 1);
        assert_eq!(reason(packing, &more, 10), Some(Reason::EncodingInvalid), "{packing}");
    }
}
