//! Spans: runs of log rows that one upload appended for one epoch, in seq order. They find a device's
//! records by range without an index entry a record.

use super::ids::Seq;
use super::reason::Mark;

/// Greatest `seq_last − seq_first` of a span, so that whatever overlaps a range starts at most this far before
/// it: an overlap query is two bounds on one index.
pub const SPAN_WIDTH_MAX: u64 = 1023;

/// A run of consecutive new entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Least seq.
    pub seq_first: Seq,
    /// Greatest seq.
    pub seq_last: Seq,
    /// Place of its first entry among the new entries.
    pub offset: usize,
    /// How many entries.
    pub count: usize,
    /// The mark all of them carry.
    pub mark: Option<Mark>,
}

/// Cuts entries, sorted by seq, into spans of one mark and bounded width.
pub fn cut(entries: impl IntoIterator<Item = (Seq, Option<Mark>)>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (offset, (seq, mark)) in entries.into_iter().enumerate() {
        match spans.last_mut().filter(|span| continues(span, seq, mark)) {
            Some(span) => {
                span.seq_last = seq;
                span.count += 1;
            }
            None => spans.push(Span { seq_first: seq, seq_last: seq, offset, count: 1, mark }),
        }
    }
    spans
}

fn continues(span: &Span, seq: Seq, mark: Option<Mark>) -> bool {
    span.mark == mark && seq.get() - span.seq_first.get() <= SPAN_WIDTH_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(entries: &[(u64, Option<Mark>)]) -> Vec<(u64, u64, usize, usize)> {
        cut(entries.iter().map(|(s, m)| (Seq::new(*s).expect("in range"), *m)))
            .iter()
            .map(|s| (s.seq_first.get(), s.seq_last.get(), s.offset, s.count))
            .collect()
    }

    #[test]
    fn cuts_at_marks_and_width() {
        assert_eq!(bounds(&[]), []);
        assert_eq!(bounds(&[(5, None), (5, None), (6, None)]), [(5, 6, 0, 3)]);
        assert_eq!(
            bounds(&[(1, None), (2, Some(Mark::Held)), (3, None)]),
            [(1, 1, 0, 1), (2, 2, 1, 1), (3, 3, 2, 1)]
        );
        assert_eq!(bounds(&[(0, None), (1023, None), (1024, None)]), [(0, 1023, 0, 2), (1024, 1024, 2, 1)]);
        let dense: Vec<_> = (0..2000).map(|s| (s, None)).collect();
        assert_eq!(bounds(&dense), [(0, 1023, 0, 1024), (1024, 1999, 1024, 976)]);
    }
}
