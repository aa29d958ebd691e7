//! Undoing one layer of compression, in memory bounded by the limit and not by what the sender announces.
//!
//! A body counts only whole: every stream must end where its format says, with its checksum right, and nothing
//! but padding may follow. What came before a fault was never confirmed and is thrown away.
//!
//! Memory beside the output, whose capacity never passes the limit by more than a byte: 43 KB of state and
//! window for deflate; 160 KB for zstd, which decodes whole frames straight into the output and so needs no
//! window of its own, whatever window a frame announces (up to 2 GiB are legal).

use std::io::{self, Read};

use flate2::bufread::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{self, DCtx};

use super::fault::Fault;
use super::form::{PRESET_DICTIONARY, Packing, ZSTD_FRAME, begins_gzip, begins_zstd};
use super::is_padding;
use crate::domain::reason::Reason;

/// Most members or frames of one body: each costs some ten microseconds to begin, however little it holds.
const PARTS_MAX: usize = 1024;

/// Output made at a time.
const PIECE: usize = 32 << 10;

/// By how much telemetry shrinks at most, usually. What shrank more is decoded in several attempts, each with
/// four times the room: together a third more work than with the right room at once.
const ZSTD_FIRST_RATIO: usize = 8;

/// The content, of at most `max` bytes.
pub(super) fn inflate(packing: Packing, body: &[u8], max: usize) -> Result<Vec<u8>, Fault> {
    let mut output = Output { whole: Vec::new(), max, packing };
    match packing {
        Packing::Gzip => output.gzip(body)?,
        Packing::Zlib => output.zlib(body)?,
        Packing::Zstd => output.zstd(body)?,
    }
    Ok(output.whole)
}

struct Output {
    whole: Vec<u8>,
    max: usize,
    packing: Packing,
}

impl Output {
    /// One member or several, as RFC 1952 has it.
    fn gzip(&mut self, body: &[u8]) -> Result<(), Fault> {
        let mut member = GzDecoder::new(body);
        for _ in 0..PARTS_MAX {
            self.fill(&mut member)?;
            let behind = *member.get_ref();
            if is_padding(behind) {
                return Ok(());
            }
            if !begins_gzip(behind) {
                return Err(self.trailing(behind));
            }
            member.reset(behind);
        }
        Err(self.too_many_parts())
    }

    fn zlib(&mut self, body: &[u8]) -> Result<(), Fault> {
        if body.get(1).is_some_and(|flags| flags & PRESET_DICTIONARY != 0) {
            return Err(Fault::new(Reason::UnsupportedEncoding, "the body is zlib with a preset dictionary"));
        }
        let mut stream = Zlib { rest: body, state: Decompress::new(true), ended: false };
        self.fill(&mut stream)?;
        if is_padding(stream.rest) { Ok(()) } else { Err(self.trailing(stream.rest)) }
    }

    /// One frame or several, as RFC 8878 has it, among them such as are to be skipped.
    fn zstd(&mut self, body: &[u8]) -> Result<(), Fault> {
        let mut context = DCtx::try_create()
            .ok_or_else(|| Fault::new(Reason::InternalError, "no memory for a zstd decoder"))?;
        let mut rest = body;
        for _ in 0..PARTS_MAX {
            // Of a frame that is to be skipped the library tells its kind instead.
            if rest.starts_with(&ZSTD_FRAME) && zstd_safe::get_dict_id_from_frame(rest).is_some() {
                return Err(Fault::new(Reason::UnsupportedEncoding, "the body is zstd with a dictionary"));
            }
            let len = zstd_safe::find_frame_compressed_size(rest).map_err(|code| self.zstd_broken(code))?;
            let (frame, behind) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            self.zstd_frame(&mut context, frame)?;
            if is_padding(behind) {
                return Ok(());
            }
            if !begins_zstd(behind) {
                return Err(self.trailing(behind));
            }
            rest = behind;
        }
        Err(self.too_many_parts())
    }

    fn zstd_frame(&mut self, context: &mut DCtx<'_>, frame: &[u8]) -> Result<(), Fault> {
        let start = self.whole.len();
        let left = self.max - start;
        let mut room = frame.len().saturating_mul(ZSTD_FIRST_RATIO).min(left);
        loop {
            self.whole.reserve_exact(room);
            self.whole.resize(start + room, 0);
            match context.decompress(&mut self.whole[start..], frame) {
                Ok(written) => {
                    self.whole.truncate(start + written);
                    return Ok(());
                }
                Err(code) if !zstd_safe::is_error_kind(code, ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) => {
                    return Err(self.zstd_broken(code));
                }
                Err(_) if room == left => return Err(self.too_large()),
                Err(_) => room = room.saturating_mul(4).min(left),
            }
            self.whole.truncate(start);
        }
    }

    /// Takes all that a reader gives.
    fn fill(&mut self, reader: &mut impl Read) -> Result<(), Fault> {
        loop {
            let start = self.whole.len();
            let left = self.max.saturating_add(1) - start;
            let room = PIECE.min(left);
            if self.whole.capacity() - start < room {
                // Twice as much as there is, or what the limit leaves of it.
                self.whole.reserve_exact(start.max(room).min(left));
            }
            self.whole.resize(start + room, 0);
            let got =
                reader.read(&mut self.whole[start..]).map_err(|error| self.broken(&error.to_string()))?;
            self.whole.truncate(start + got);
            if got == 0 {
                return Ok(());
            }
            if self.whole.len() > self.max {
                return Err(self.too_large());
            }
        }
    }

    fn too_large(&self) -> Fault {
        let detail = format!("the {} body holds more than {} bytes", self.packing, self.max);
        Fault::new(Reason::DecodedTooLarge, detail)
    }

    fn broken(&self, why: &str) -> Fault {
        Fault::new(Reason::EncodingInvalid, format!("the {} body is damaged: {why}", self.packing))
    }

    fn zstd_broken(&self, code: zstd_safe::ErrorCode) -> Fault {
        self.broken(zstd_safe::get_error_name(code))
    }

    fn too_many_parts(&self) -> Fault {
        let detail = format!("the {} body is in more than {PARTS_MAX} parts", self.packing);
        Fault::new(Reason::EncodingInvalid, detail)
    }

    fn trailing(&self, behind: &[u8]) -> Fault {
        let detail = format!("{} bytes follow the end of the {} body", behind.len(), self.packing);
        Fault::new(Reason::EncodingInvalid, detail)
    }
}

/// A zlib stream. The library's own reader takes one that breaks off for one that ended.
struct Zlib<'a> {
    rest: &'a [u8],
    state: Decompress,
    ended: bool,
}

impl Read for Zlib<'_> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        loop {
            let before = (self.state.total_in(), self.state.total_out());
            let status = self.state.decompress(self.rest, piece, FlushDecompress::None)?;
            let taken = usize::try_from(self.state.total_in() - before.0).unwrap_or(usize::MAX);
            let written = usize::try_from(self.state.total_out() - before.1).unwrap_or(usize::MAX);
            self.rest = self.rest.get(taken..).unwrap_or_default();
            self.ended = status == Status::StreamEnd;
            if written > 0 || self.ended {
                return Ok(written);
            }
            if taken == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it breaks off"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
