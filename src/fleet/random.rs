//! Pseudo-random numbers that are the same on every machine.

/// Pseudo-random numbers (`SplitMix64`; Steele, Lea and Flood 2014): one word of state, and any seed will do.
/// Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Starts a stream of its own for the `index`-th user of one seed.
    pub const fn stream(seed: u64, index: u64) -> Self {
        let mut own = Self(seed ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93));
        own.0 = own.next_u64();
        own
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0 … bound − 1`, 0 where the bound is 0. Its bias, at most bound / 2^32, does not matter here.
    pub const fn below(&mut self, bound: u32) -> u32 {
        let high = self.next_u64() >> 32;
        let [.., a, b, c, d] = ((high * bound as u64) >> 32).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// True once in `n` times.
    pub const fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// A random UUID (version 4, RFC 9562).
    pub fn uuid(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next_u64().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next_u64().to_be_bytes());
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_published_numbers() {
        // First outputs of SplitMix64 from seed 1234567, as its reference implementation prints them.
        let mut random = Random::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([random.next_u64(), random.next_u64(), random.next_u64()], expected);
        assert!((0..1000).all(|_| random.below(6) < 6));
        assert_eq!(random.below(0), 0);
        let id = crate::domain::ids::BatchId::Uuid(random.uuid()).to_string();
        assert_eq!((&id[14..15], id.len()), ("4", 36));
    }
}
