//! Reading an upload's body under its bounds.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::budget::Held;

/// Room made at most before the first byte came: what a client only promises costs it nothing, and us little.
const FIRST_ROOM: usize = 4096;

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

/// Reads a whole body of at most `max` bytes. The deadline is on silence, not on the whole: 200 KB at
/// 300 bit/s is fine. Pieces are copied together, so that no read buffer of the connection stays alive for
/// the sake of a few bytes in it.
pub(super) async fn read<B>(
    mut body: B,
    max: usize,
    idle: Duration,
    held: &mut Held,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let promised = body.size_hint().exact().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let mut whole = Vec::new();
    loop {
        let frame = match timeout(idle, body.frame()).await {
            Err(_) => return Err(BodyError::Silent),
            Ok(None) => return Ok(Bytes::from(whole)),
            Ok(Some(Err(_))) => return Err(BodyError::Broken),
            Ok(Some(Ok(frame))) => frame,
        };
        // Anything else is a trailer, which means nothing here.
        if let Ok(piece) = frame.into_data() {
            if piece.len() > max - whole.len() {
                return Err(BodyError::TooLarge);
            }
            if !held.take(piece.len()) {
                return Err(BodyError::NoRoom);
            }
            if whole.capacity() == 0 {
                whole.reserve_exact(promised.min(FIRST_ROOM).max(piece.len()));
            }
            whole.extend_from_slice(&piece);
        }
    }
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
        read(pieces, max, Duration::from_mins(5), &mut held).await
    }

    #[tokio::test]
    async fn reads_up_to_the_limit_and_the_room() {
        assert_eq!(read_pieces(&[], 5, 9).await, Ok(Bytes::new()));
        assert_eq!(read_pieces(&[b"ab", b"", b"cde"], 5, 9).await, Ok(Bytes::from_static(b"abcde")));
        assert_eq!(read_pieces(&[b"ab", b"cdef"], 5, 9).await, Err(BodyError::TooLarge));
        assert_eq!(read_pieces(&[b"ab", b"cde"], 5, 4).await, Err(BodyError::NoRoom));
    }

    #[tokio::test]
    async fn gives_up_on_silence() {
        struct Silence;
        impl Body for Silence {
            type Data = Bytes;
            type Error = Infallible;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                Poll::Pending
            }
        }
        let mut held = Budget::new(9).open();
        let read = read(Silence, 5, Duration::ZERO, &mut held).await;
        assert_eq!(read, Err(BodyError::Silent));
    }
}
