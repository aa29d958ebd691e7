//! A set of row numbers, one bit each, in blocks that are made when needed: a damaged number costs one block.

use std::collections::BTreeMap;

/// Rows of a block: 4 KiB of bits.
const BLOCK_ROWS: i64 = 32_768;

/// See the module.
#[derive(Default)]
pub(super) struct Rows {
    blocks: BTreeMap<i64, Box<[u64; 512]>>,
}

impl Rows {
    fn bit(&mut self, row: i64) -> (&mut u64, u64) {
        let block = self.blocks.entry(row.div_euclid(BLOCK_ROWS)).or_insert_with(|| Box::new([0; 512]));
        let place = row.rem_euclid(BLOCK_ROWS).unsigned_abs();
        // Within the block, so the conversion and the index always hold.
        (&mut block[usize::try_from(place / 64).unwrap_or(0)], 1 << (place % 64))
    }

    /// Whether the row was not in the set.
    pub(super) fn insert(&mut self, row: i64) -> bool {
        let (word, bit) = self.bit(row);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Whether the row was in the set.
    pub(super) fn remove(&mut self, row: i64) -> bool {
        let (word, bit) = self.bit(row);
        let there = *word & bit != 0;
        *word &= !bit;
        there
    }

    /// The rows in the set.
    pub(super) fn iter(&self) -> impl Iterator<Item = i64> {
        let words = self.blocks.iter().flat_map(|(block, words)| {
            (0..).zip(words.iter()).map(move |(place, word)| (block * BLOCK_ROWS + 64 * place, *word))
        });
        words.filter(|(_, word)| *word != 0).flat_map(|(first, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_any_row_once() {
        let mut rows = Rows::default();
        let some = [i64::MIN, -32_769, -1, 0, 63, 64, 32_767, 32_768, 1 << 62, i64::MAX];
        for row in some {
            assert!(rows.insert(row) && !rows.insert(row), "{row}");
        }
        assert_eq!(rows.iter().collect::<Vec<_>>(), some);
        for row in some {
            assert!(rows.remove(row) && !rows.remove(row), "{row}");
        }
        assert_eq!(rows.iter().next(), None);
    }
}
