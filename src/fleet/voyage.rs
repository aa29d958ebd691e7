//! Where a tracker is at any time: it sails a route on open water to and fro.
//!
//! The place is a function of the time alone, so a fleet that is played again goes on where it would be by now. Only
//! `+ − × ÷` and square roots are used: the last bit of a library's cosine is not the same everywhere.

use super::random::Random;

/// A point on a route: degrees north, degrees east. East of a route that crosses the antimeridian goes on past 180.
type Waypoint = (f64, f64);

/// Routes that trackers sail, on open water all along.
const ROUTES: [&[Waypoint]; 12] = [
    // Off Oahu to San Francisco.
    &[(22.0, -156.6), (24.8, -152.0), (31.0, -138.5), (36.5, -125.5), (37.5, -123.6)],
    // The Canaries to Barbados with the trade wind.
    &[(26.5, -17.6), (19.0, -30.0), (14.5, -45.0), (13.2, -58.3)],
    // Tahiti to Auckland, over the antimeridian.
    &[(-18.4, -150.4), (-24.0, -162.0), (-30.0, -174.0), (-34.5, -182.6), (-35.6, -184.2)],
    // Cape Town to Ascension, past Saint Helena.
    &[(-33.6, 17.2), (-25.0, 6.0), (-18.0, -4.2), (-8.6, -13.6)],
    // Perth to Mauritius.
    &[(-31.9, 114.3), (-29.0, 100.0), (-24.0, 78.0), (-20.6, 58.8)],
    // The Western Approaches to the Grand Banks.
    &[(48.8, -7.4), (49.0, -25.0), (47.0, -42.0), (46.0, -51.0)],
    // Yokohama towards Dutch Harbor, over the antimeridian.
    &[(34.3, 141.2), (41.0, 151.0), (47.5, 170.0), (51.0, 184.0), (52.0, 190.0)],
    // Valparaíso to Easter Island.
    &[(-32.9, -72.6), (-30.0, -90.0), (-27.4, -108.4)],
    // Sydney to Cook Strait.
    &[(-34.2, 152.4), (-37.0, 160.0), (-40.0, 170.8)],
    // Mumbai towards the Gulf of Aden.
    &[(18.0, 71.2), (15.5, 63.0), (13.6, 56.0)],
    // Cape Horn to the South Shetlands.
    &[(-56.6, -64.5), (-59.0, -62.0), (-61.0, -60.4)],
    // The Azores to Bermuda.
    &[(37.2, -28.6), (36.0, -42.0), (33.5, -55.0), (32.4, -63.8)],
];

/// Unit vectors of the 16 points of the compass: north, east.
const COMPASS: [(f64, f64); 16] = {
    const DIAGONAL: f64 = std::f64::consts::FRAC_1_SQRT_2;
    const NEAR: f64 = 0.923_88;
    const FAR: f64 = 0.382_68;
    [
        (1.0, 0.0),
        (NEAR, FAR),
        (DIAGONAL, DIAGONAL),
        (FAR, NEAR),
        (0.0, 1.0),
        (-FAR, NEAR),
        (-DIAGONAL, DIAGONAL),
        (-NEAR, FAR),
        (-1.0, 0.0),
        (-NEAR, -FAR),
        (-DIAGONAL, -DIAGONAL),
        (-FAR, -NEAR),
        (0.0, -1.0),
        (FAR, -NEAR),
        (DIAGONAL, -DIAGONAL),
        (NEAR, -FAR),
    ]
};

/// A vessel is set aside by wind and current; how far changes from one knot of time to the next.
const MEANDER_SECONDS: i64 = 5 * 3600;
/// Nautical miles in a degree of latitude.
const MILES: f64 = 60.0;

/// A vessel on its route.
#[derive(Clone, Debug)]
pub(super) struct Voyage {
    route: &'static [Waypoint],
    /// Tenths of a knot.
    speed: u32,
    /// Nautical miles along the route at second 0.
    start: f64,
    /// How far it is set aside at most, in degrees.
    breadth: f64,
    /// What that is drawn from.
    seed: u64,
}

/// Where a vessel is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// Degrees.
    pub(super) lat: f64,
    /// Degrees, −180 … 180.
    pub(super) lon: f64,
    /// Its course, to the nearest of 16 points of the compass, in whole degrees.
    pub(super) course: usize,
}

impl Voyage {
    /// The voyage of the `index`-th tracker: neighbours sail different routes.
    pub(super) fn new(index: u32, random: &mut Random) -> Self {
        let route = ROUTES[index as usize % ROUTES.len()];
        // Freighters, yachts and drifting buoys.
        let (speed, breadth) = match random.below(4) {
            0 | 1 => (100 + random.below(60), 0.05),
            2 => (40 + random.below(30), 0.2),
            _ => (4 + random.below(10), 0.1),
        };
        let start = length(route) * 2.0 * f64::from(random.below(10_000)) / 10_000.0;
        Self { route, speed, start, breadth, seed: random.next_u64() }
    }

    /// Tenths of a knot.
    pub(super) const fn speed(&self) -> u32 {
        self.speed
    }

    /// The place at a time, in seconds since 1970.
    pub(super) fn at(&self, seconds: i64) -> Place {
        let whole = length(self.route);
        let sailed = self.start + f64::from(self.speed) / 36_000.0 * to_f64(seconds);
        // To and fro: the second half of each round is the way back.
        let round = sailed.rem_euclid(2.0 * whole);
        let (along, sense) = if round <= whole { (round, 1.0) } else { (2.0 * whole - round, -1.0) };
        let (leg, part) = self.leg(along);
        let (north, east) = (leg.1.0 - leg.0.0, leg.1.1 - leg.0.1);
        let stretch = cosine(leg.0.0);
        let norm = (north * north + east * east * stretch * stretch).sqrt();
        // To the left of the leg, in degrees of latitude; nothing at its ends, where the direction changes.
        let aside = self.breadth * self.meander(seconds) * 4.0 * part * (1.0 - part) / norm;
        let lat = leg.0.0 + part * north - aside * east * stretch;
        let lon = leg.0.1 + part * east + aside * north / stretch;
        Place { lat, lon: wrapped(lon), course: course(sense * north, sense * east * stretch) }
    }

    /// The leg on which a vessel is after so many miles, and what part of it is behind it.
    fn leg(&self, along: f64) -> ((Waypoint, Waypoint), f64) {
        let mut left = along;
        let mut last = ((self.route[0], self.route[0]), 0.0);
        for pair in self.route.windows(2) {
            let miles = distance(pair[0], pair[1]);
            last = ((pair[0], pair[1]), (left / miles).min(1.0));
            if left <= miles {
                break;
            }
            left -= miles;
        }
        last
    }

    /// −1 … 1, the same at the same time, and smooth: knots of noise joined by smoothstep.
    fn meander(&self, seconds: i64) -> f64 {
        let knot = seconds.div_euclid(MEANDER_SECONDS);
        let at = |knot: i64| {
            f64::from(Random::stream(self.seed, knot.cast_unsigned()).below(20_001)) / 10_000.0 - 1.0
        };
        let part = to_f64(seconds.rem_euclid(MEANDER_SECONDS)) / to_f64(MEANDER_SECONDS);
        let smooth = part * part * (3.0 - 2.0 * part);
        at(knot) + (at(knot + 1) - at(knot)) * smooth
    }
}

/// Nautical miles from end to end.
fn length(route: &[Waypoint]) -> f64 {
    route.windows(2).map(|pair| distance(pair[0], pair[1])).sum()
}

/// Nautical miles between neighbours on a route, as on a flat chart: within a few percent.
fn distance(one: Waypoint, other: Waypoint) -> f64 {
    let north = other.0 - one.0;
    let east = (other.1 - one.1) * cosine(f64::midpoint(one.0, other.0));
    (north * north + east * east).sqrt() * MILES
}

/// The cosine of degrees −70 … 70, to four digits (its series to the sixth power).
fn cosine(degrees: f64) -> f64 {
    let square = (degrees / 57.295_78) * (degrees / 57.295_78);
    1.0 - square / 2.0 * (1.0 - square / 12.0 * (1.0 - square / 30.0))
}

/// The nearest point of the compass to a direction, in whole degrees.
fn course(north: f64, east: f64) -> usize {
    let along = |point: usize| COMPASS[point].0 * north + COMPASS[point].1 * east;
    let nearest =
        (1..COMPASS.len()).fold(0, |best, point| if along(point) > along(best) { point } else { best });
    nearest * 45 / 2
}

/// East within −180 … 180.
fn wrapped(lon: f64) -> f64 {
    if lon < -180.0 {
        lon + 360.0
    } else if lon > 180.0 {
        lon - 360.0
    } else {
        lon
    }
}

/// Seconds of any century fit in a double.
#[expect(clippy::cast_precision_loss, reason = "seconds of times the gateway knows are far below 2^53")]
const fn to_f64(seconds: i64) -> f64 {
    seconds as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leg_has_the_length_that_charts_say() {
        // From north of Oahu to San Francisco it is about 2,000 nautical miles by great circle.
        assert!((1900.0..2050.0).contains(&length(ROUTES[0])), "{}", length(ROUTES[0]));
        assert!((cosine(60.0) - 0.5).abs() < 0.001 && (cosine(-30.0) - 0.866).abs() < 0.001);
    }

    #[test]
    fn a_vessel_keeps_its_speed_and_turns_at_the_ends() {
        for index in 0..24 {
            let voyage = Voyage::new(index, &mut Random::stream(5, u64::from(index)));
            let knots = f64::from(voyage.speed()) / 10.0;
            let mut last = voyage.at(0);
            for minute in 1..60 * 24 * 30 {
                let place = voyage.at(minute * 60);
                assert!((-180.0..=180.0).contains(&place.lon) && (-70.0..=70.0).contains(&place.lat));
                let east = wrapped(place.lon - last.lon) * cosine(place.lat);
                let north = place.lat - last.lat;
                let miles = (north * north + east * east).sqrt() * 60.0;
                // A minute's way, and what sets it aside: at most 1.5 × 2 × 0.2° in five hours.
                assert!(
                    miles <= knots / 60.0 * 1.1 + 0.15,
                    "{index}: {miles} miles in a minute at {knots} kn"
                );
                last = place;
            }
        }
    }

    #[test]
    fn the_course_is_that_of_the_leg() {
        assert_eq!(
            [course(1.0, 0.0), course(0.0, 1.0), course(-1.0, 0.1), course(1.0, -1.0)],
            [0, 90, 180, 315]
        );
    }

    #[test]
    fn routes_cross_the_antimeridian_in_one_piece() {
        assert!((wrapped(-184.2) - 175.8).abs() < 1e-9 && (wrapped(190.0) + 170.0).abs() < 1e-9);
        assert!((wrapped(-180.0) + 180.0).abs() < 1e-9);
        assert!(ROUTES.iter().any(|route| route.iter().any(|point| point.1.abs() > 180.0)));
    }
}
