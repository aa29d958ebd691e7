//! Reading an upload's body under its bounds. The deadline on its silences is the connection's own, see
//! [`super::wire`].

use std::error::Error;
use std::io;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;

use super::budget::Held;

/// Room made at most before the first byte came: what a client only promises costs it nothing, and us little.
const FIRST_ROOM: usize = 512;

/// Why a body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    /// It is longer than the limit.
    TooLarge,
    /// Nothing came for longer than the idle time.
    Silent,
    /// All bodies together hold as much memory as they may.
    NoRoom,
    /// The connection broke, or the framing did.
    Broken,
}

/// Reads a whole body of at most `max` bytes. Pieces are copied together, so that no read buffer of the
/// connection stays alive for the sake of a few bytes in it.
pub(super) async fn read<B>(mut body: B, max: usize, held: &mut Held) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes, Error: Error + 'static> + Unpin,
{
    let promised = body.size_hint().exact().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let mut whole = Vec::new();
    loop {
        let frame = match body.frame().await {
            None => return Ok(Bytes::from(whole)),
            Some(Err(error)) => return Err(why(&error)),
            Some(Ok(frame)) => frame,
        };
        // Anything else is a trailer, which means nothing here.
        if let Ok(piece) = frame.into_data() {
            if piece.len() > max - whole.len() {
                return Err(BodyError::TooLarge);
            }
            if !make_room(&mut whole, piece.len(), promised, held) {
                return Err(BodyError::NoRoom);
            }
            whole.extend_from_slice(&piece);
        }
    }
}

/// Makes room for a piece, a quarter in reserve at most, and takes that from the budget; `false` where it has no more.
/// A vector left to itself would double, and hold twice what the budget knows of.
fn make_room(whole: &mut Vec<u8>, piece: usize, promised: usize, held: &mut Held) -> bool {
    let (len, room) = (whole.len(), whole.capacity());
    let needed = len + piece;
    if needed <= room {
        return true;
    }
    let wanted = if room == 0 { promised.min(FIRST_ROOM) } else { room + room / 4 };
    // Not past what was promised, as long as the promise holds.
    let wanted = if promised >= needed { wanted.min(promised) } else { wanted }.max(needed);
    if !held.take(wanted - room) {
        return false;
    }
    whole.reserve_exact(wanted - len);
    true
}

fn why(error: &(dyn Error + 'static)) -> BodyError {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    let silent = causes.any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    });
    if silent { BodyError::Silent } else { BodyError::Broken }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;
    use crate::http::budget::Budget;

    struct Pieces(VecDeque<&'static [u8]>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(Bytes::from_static(piece)))))
        }
    }

    async fn read_pieces(pieces: &[&'static [u8]], max: usize, room: usize) -> Result<Bytes, BodyError> {
        let budget = Budget::new(room);
        let mut held = budget.open();
        let pieces = Pieces(pieces.iter().copied().collect());
        read(pieces, max, &mut held).await
    }

    #[tokio::test]
    async fn reads_up_to_the_limit_and_the_room() {
        assert_eq!(read_pieces(&[], 5, 9).await, Ok(Bytes::new()));
        assert_eq!(read_pieces(&[b"ab", b"", b"cde"], 5, 9).await, Ok(Bytes::from_static(b"abcde")));
        assert_eq!(read_pieces(&[b"ab", b"cdef"], 5, 9).await, Err(BodyError::TooLarge));
        assert_eq!(read_pieces(&[b"ab", b"cde"], 5, 4).await, Err(BodyError::NoRoom));
    }

    #[tokio::test]
    async fn tells_silence_from_a_break() {
        struct Ends(io::ErrorKind);
        impl Body for Ends {
            type Data = Bytes;
            type Error = io::Error;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
                Poll::Ready(Some(Err(self.0.into())))
            }
        }
        for (kind, error) in [
            (io::ErrorKind::TimedOut, BodyError::Silent),
            (io::ErrorKind::UnexpectedEof, BodyError::Broken),
            (io::ErrorKind::ConnectionReset, BodyError::Broken),
        ] {
            let mut held = Budget::new(9).open();
            assert_eq!(read(Ends(kind), 5, &mut held).await, Err(error), "{kind}");
        }
    }
}
