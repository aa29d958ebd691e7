//! A device's history, streamed: each page is a read of its own, so that a slow client holds neither a
//! reader nor more memory than a page.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Response, Uri};
use bytes::Bytes;
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::auth::Reader;
use super::gateway::{Gateway, READ_PATIENCE};
use super::problem::{Code, Problem, ProblemBody};
use super::query::{self, Params};
use super::read::{Named, unknown};
use super::record_view::{self, TrackBody};
use super::walk::{Range, Walk};
use crate::domain::ids::DeviceId;
use crate::store::TimeRange;

/// Records of a JSON page where the client names no limit, and at most.
const LIMIT: usize = 1000;
const LIMIT_MAX: usize = 10_000;
/// Entries of one read.
const READ_ENTRIES: usize = 1000;
/// How long a read in mid-answer waits for a free reader: breaking off costs more than waiting.
const STREAM_PATIENCE: Duration = Duration::from_mins(1);

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// One object with a page of records.
    Json,
    /// One record a line, the whole range.
    Ndjson,
}

impl Format {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "json" => Some(Self::Json),
            "ndjson" => Some(Self::Ndjson),
            _ => None,
        }
    }

    /// What `Accept` prefers; JSON unless lines are asked for by name.
    fn accepted(headers: &HeaderMap) -> Self {
        let ranges = headers.get_all(ACCEPT).iter().flat_map(|line| line.as_bytes().split(|b| *b == b','));
        let (mut lines, mut json) = (0.0, 0.0);
        for (media_type, weight) in ranges.map(weighed) {
            match media_type.as_slice() {
                b"application/x-ndjson" | b"application/ndjson" | b"application/jsonl" => {
                    lines = f32::max(lines, weight);
                }
                b"application/json" => json = f32::max(json, weight),
                _ => {}
            }
        }
        if lines > json { Self::Ndjson } else { Self::Json }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
        }
    }
}

/// A media type in lower case, and its `q`.
fn weighed(range: &[u8]) -> (Vec<u8>, f32) {
    let mut parts = range.split(|b| *b == b';').map(<[u8]>::trim_ascii);
    let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
    let weight = parts
        .find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")))
        .and_then(|q| std::str::from_utf8(q).ok()?.parse().ok());
    (media_type, weight.unwrap_or(1.0))
}

/// A device's history in order of `(epoch_id, seq)`, each key once.
#[utoipa::path(
    get, path = "/v1/devices/{device_id}/track", tag = "reading", security(("bearer" = []), ("session" = [])),
    params(
        ("device_id" = String, Path, description = "The device"),
        ("epoch_id" = Option<u64>, Query, description = "Only this epoch"),
        ("from_seq" = Option<u64>, Query, description = "Least seq wanted, of every epoch"),
        ("to_seq" = Option<u64>, Query, description = "Greatest seq wanted, of every epoch"),
        ("recorded_from" = Option<String>, Query, description = "Device time not before; RFC 3339 or Unix seconds"),
        ("recorded_to" = Option<String>, Query, description = "Device time not after"),
        ("received_from" = Option<String>, Query, description = "Arrived not before"),
        ("received_to" = Option<String>, Query, description = "Arrived not after"),
        ("format" = Option<String>, Query, description = "`json` (default) or `ndjson`; overrides `Accept`"),
        ("limit" = Option<u64>, Query, description = "JSON: records of a page, 1 … 10,000, 1,000 by default. NDJSON: whole unless given"),
        ("after" = Option<String>, Query, description = "The `next` of the page before, with the same range"),
    ),
    responses(
        (status = 200, description = "The records", content(
            (TrackBody = "application/json"), (record_view::RecordView<'_> = "application/x-ndjson"))),
        (status = 400, description = "The query cannot be used", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid token or session", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "The device was never seen", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Try again after `Retry-After` seconds", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn track(
    _: Reader,
    State(gateway): State<Arc<Gateway>>,
    Named(device_id): Named,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let (range, format, limit) = read_query(&uri, &headers)?;
    let Ok(place) = Arc::clone(&gateway.streams).try_acquire_owned() else {
        return Err(Problem::unavailable());
    };
    let walk = Walk::new(device_id.clone(), &range);
    let mut writing = Writing { gateway, device_id, walk, format, left: limit, started: false, ended: false };
    // The first page decides the status.
    let first = writing.next(READ_PATIENCE).await?;
    let body = if writing.ended { Body::from(first) } else { stream(writing, first, place) };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    Ok(response)
}

/// Range, format and most records of a request.
fn read_query(uri: &Uri, headers: &HeaderMap) -> Result<(Range, Format, Option<usize>), Problem> {
    let mut params = Params::read(uri)?;
    let format = params.take("format", "json or ndjson", Format::parse)?;
    let format = format.unwrap_or_else(|| Format::accepted(headers));
    let limit = match format {
        Format::Json => Some(params.limit(LIMIT_MAX)?.unwrap_or(LIMIT)),
        Format::Ndjson => params.limit(usize::MAX)?,
    };
    let range = Range {
        epoch_id: params.epoch_id("epoch_id")?,
        from_seq: params.seq("from_seq")?,
        to_seq: params.seq("to_seq")?,
        recorded: TimeRange { from: params.time("recorded_from")?, to: params.time("recorded_to")? },
        received: TimeRange { from: params.time("received_from")?, to: params.time("received_to")? },
        after: params.cursor("after")?,
    };
    params.finish()?;
    if range.from_seq > range.to_seq && range.to_seq.is_some() {
        return Err(Problem::new(Code::QueryInvalid, "from_seq is greater than to_seq."));
    }
    Ok((range, format, limit))
}

/// An answer being written.
struct Writing {
    gateway: Arc<Gateway>,
    device_id: DeviceId,
    walk: Walk,
    format: Format,
    /// Records still wanted; `None`: all.
    left: Option<usize>,
    /// Whether a record was written.
    started: bool,
    /// Whether the answer is complete.
    ended: bool,
}

impl Writing {
    /// The answer's next piece: what one read gives. Sets `ended` with the last one.
    async fn next(&mut self, patience: Duration) -> Result<Vec<u8>, Problem> {
        let mut piece = Vec::new();
        let limit = self.left.map_or(READ_ENTRIES, |left| left.min(READ_ENTRIES));
        let mut walk = self.walk.clone();
        let (format, started) = (self.format, self.started);
        let read = self.gateway.read(patience, move |store| {
            let Some(entries) = walk.step(store, limit)? else {
                return Ok(None);
            };
            let mut records = Vec::new();
            let separator: &[u8] = if format == Format::Json { b"," } else { b"\n" };
            for (i, entry) in entries.iter().enumerate() {
                if i > 0 || (started && format == Format::Json) {
                    records.extend_from_slice(separator);
                }
                record_view::write(entry, &mut records)?;
            }
            if !entries.is_empty() && format == Format::Ndjson {
                records.push(b'\n');
            }
            Ok(Some((walk, records, entries.len())))
        });
        let (walk, records, count) = read.await?.ok_or_else(unknown)?;
        self.walk = walk;
        self.left = self.left.map(|left| left.saturating_sub(count));
        self.ended = self.walk.at().is_none() || self.left == Some(0);
        if self.format == Format::Json && !self.started && self.opens(count) {
            piece.extend_from_slice(format!(r#"{{"device_id":"{}","records":["#, self.device_id).as_bytes());
        }
        self.started |= count > 0;
        piece.extend_from_slice(&records);
        if self.format == Format::Json && self.ended {
            let next = self.walk.at().map(|key| format!("\"{}\"", query::cursor(key)));
            piece
                .extend_from_slice(format!(r#"],"next":{}}}"#, next.as_deref().unwrap_or("null")).as_bytes());
        }
        Ok(piece)
    }

    /// Whether the opening of a JSON answer is due: with its first record, or with an end that has none.
    fn opens(&self, count: usize) -> bool {
        count > 0 || self.ended
    }
}

/// Sends the first piece, and from a task of its own the rest.
fn stream(mut writing: Writing, first: Vec<u8>, place: OwnedSemaphorePermit) -> Body {
    // One piece waits while the one before is being sent.
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut piece = first;
        loop {
            if !piece.is_empty() && sender.send(Some(Bytes::from(piece))).await.is_err() {
                return;
            }
            if writing.ended {
                // Fails only where the client has left.
                let _ = sender.send(None).await;
                return;
            }
            if sender.is_closed() {
                return;
            }
            match writing.next(STREAM_PATIENCE).await {
                Ok(next) => piece = next,
                // Dropping the sender without the mark of the end breaks the answer off.
                Err(_) => return,
            }
        }
    });
    Body::new(Pieces { from: pieces, ended: false, _place: place })
}

/// A body that ends well only where its writer says so: an answer that breaks off must not look complete.
struct Pieces {
    /// `None` in the channel is the mark of the end.
    from: mpsc::Receiver<Option<Bytes>>,
    ended: bool,
    _place: OwnedSemaphorePermit,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.from.poll_recv(cx).map(|received| match received {
            Some(Some(piece)) => Some(Ok(Frame::data(piece))),
            Some(None) => {
                self.ended = true;
                None
            }
            None => {
                self.ended = true;
                Some(Err(io::Error::other("the history could not be read on")))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::EpochId;

    #[test]
    fn lines_are_sent_to_those_who_ask_for_them() {
        for (accept, format) in [
            (&[][..], Format::Json),
            (&["*/*"], Format::Json),
            (&["application/x-ndjson"], Format::Ndjson),
            (&["Application/X-NDJSON; q=0.5, */*;q=0.1"], Format::Ndjson),
            (&["text/html", "application/jsonl"], Format::Ndjson),
            (&["application/json, application/x-ndjson"], Format::Json),
            (&["application/json;q=0.3, application/ndjson;q=0.4"], Format::Ndjson),
            (&["application/x-ndjson;q=0"], Format::Json),
            (&["application/x-ndjson;q=nonsense"], Format::Ndjson),
        ] {
            let mut headers = HeaderMap::new();
            for line in accept {
                headers.append(ACCEPT, line.parse().expect("a header value"));
            }
            assert_eq!(Format::accepted(&headers), format, "{accept:?}");
        }
    }

    #[test]
    fn reads_the_query() {
        let read = |query: &str| {
            let uri = format!("/v1/devices/x/track?{query}").parse().expect("a URI");
            read_query(&uri, &HeaderMap::new())
        };
        let (range, format, limit) = read("epoch_id=3&from_seq=1&to_seq=1&received_to=5").expect("fine");
        assert_eq!((range.epoch_id.map(EpochId::get), format, limit), (Some(3), Format::Json, Some(1000)));
        assert_eq!(read("format=ndjson").expect("fine").2, None);
        assert_eq!(read("format=ndjson&limit=20000").expect("fine").2, Some(20_000));
        assert_eq!(read("limit=10000").expect("fine").2, Some(10_000));
        for bad in ["limit=10001", "format=xml", "from_seq=2&to_seq=1", "epoch_id=-1", "since=3", "after=x"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn an_answer_ends_well_only_where_its_writer_says_so() {
        use http_body_util::BodyExt;
        let places = Arc::new(tokio::sync::Semaphore::new(1));
        for complete in [true, false] {
            let (sender, from) = mpsc::channel(2);
            sender.send(Some(Bytes::from_static(b"{}\n"))).await.expect("room");
            if complete {
                sender.send(None).await.expect("room");
            }
            drop(sender);
            let place = Arc::clone(&places).try_acquire_owned().expect("a place");
            let read = Pieces { from, ended: false, _place: place }.collect().await;
            assert_eq!(read.is_ok(), complete);
        }
        assert_eq!(places.available_permits(), 1, "places come back");
    }
}
