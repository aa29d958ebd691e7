//! The report: medians over the rounds as tables, and which aims are met.

use std::fmt::Write as _;

use crate::bare::Pace;
use crate::measure::Figures;
use crate::requests::BATCH_RECORDS;

/// All that one round measured at one number of connections, one after the other.
pub(crate) struct Row {
    pub(crate) connections: usize,
    /// The gateway on a new database.
    pub(crate) fresh: Figures,
    /// The bare loop on a new database.
    pub(crate) bare: Option<Pace>,
    /// The Python gateway on a new database.
    pub(crate) python: Option<Figures>,
    /// The gateway behind the rows filled in.
    pub(crate) behind: Option<Figures>,
    /// The bare loop behind them.
    pub(crate) bare_behind: Option<Pace>,
}

/// The middle one; of an even number the lesser of the two.
fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// The whole report, in Markdown.
pub(crate) fn report(rows: &[Row], filled: u64) -> String {
    let mut text = String::new();
    let mut connections: Vec<usize> = Vec::new();
    for row in rows {
        if !connections.contains(&row.connections) {
            connections.push(row.connections);
        }
    }
    let groups: Vec<(usize, Vec<&Row>)> =
        connections.iter().map(|&n| (n, rows.iter().filter(|row| row.connections == n).collect())).collect();
    let behind = format!("gateway, behind {filled} rows");
    servers(&mut text, &groups, &behind);
    ratios(&mut text, &groups);
    aims(&mut text, &groups);
    text
}

type Field = fn(&Figures) -> f64;
type Groups<'a> = [(usize, Vec<&'a Row>)];

// Writing to a String cannot fail: its results are dropped here and below.
fn servers(text: &mut String, groups: &Groups<'_>, behind: &str) {
    text.push_str(
        "| what | connections | batches/s | records/s | p50 ms | p99 ms | longest stall ms | batches a commit | \
         CPU µs a batch | of it the writer | of the load | peak MB | bytes a record |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut add = |what: &str, connections: usize, found: Vec<&Figures>| {
        let of = |field: Field| median(found.iter().map(|figures| field(figures)));
        let Some(rate) = of(|f| f.rate) else { return };
        let _ =
            write!(text, "| {what} | {connections} | {rate:.0} | {:.0} ", rate * f64::from(BATCH_RECORDS));
        let fields: [(Field, usize); 9] = [
            (|f| f.p50, 2),
            (|f| f.p99, 2),
            (|f| f.stall, 0),
            (|f| f.group, 1),
            (|f| f.cpu, 0),
            (|f| f.cpu_writer, 0),
            (|f| f.cpu_load, 0),
            (|f| f.peak, 0),
            (|f| f.disk, 1),
        ];
        for (field, decimals) in fields {
            let _ = write!(text, "| {:.decimals$} ", of(field).unwrap_or_default());
        }
        text.push_str("|\n");
    };
    for (connections, rows) in groups {
        add("gateway, fresh", *connections, rows.iter().map(|row| &row.fresh).collect());
    }
    for (connections, rows) in groups {
        add(behind, *connections, rows.iter().filter_map(|row| row.behind.as_ref()).collect());
    }
    for (connections, rows) in groups {
        add(
            "Python gateway, fresh",
            *connections,
            rows.iter().filter_map(|row| row.python.as_ref()).collect(),
        );
    }
}

/// Medians of the ratios of one round each.
struct Ratios {
    to_bare: Option<f64>,
    to_bare_behind: Option<f64>,
    to_python: Option<f64>,
    behind_to_fresh: Option<f64>,
    again_cpu: Option<f64>,
    again_rate: Option<f64>,
}

fn ratios_of(rows: &[&Row]) -> Ratios {
    let of = |ratio: fn(&Row) -> Option<f64>| median(rows.iter().filter_map(|row| ratio(row)));
    Ratios {
        to_bare: of(|row| Some(row.fresh.rate / row.bare?.rate)),
        to_bare_behind: of(|row| Some(row.behind.as_ref()?.rate / row.bare_behind?.rate)),
        to_python: of(|row| Some(row.fresh.rate / row.python.as_ref()?.rate)),
        behind_to_fresh: of(|row| Some(row.behind.as_ref()?.rate / row.fresh.rate)),
        again_cpu: of(|row| Some(row.fresh.again?.1 / row.fresh.cpu)),
        again_rate: of(|row| Some(row.fresh.again?.0 / row.fresh.rate)),
    }
}

fn ratios(text: &mut String, groups: &Groups<'_>) {
    text.push_str(
        "\n| connections | bare loop, fresh | its CPU µs a batch | gateway / bare | bare loop, behind | its CPU µs a batch | \
         gateway / bare, behind | \
         gateway / Python | behind / fresh | duplicates/s | duplicate / new, CPU | duplicate / new, batches/s |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (connections, rows) in groups {
        let ratios = ratios_of(rows);
        let _ = write!(text, "| {connections} ");
        let of = |value: fn(&Row) -> Option<f64>| median(rows.iter().filter_map(|row| value(row)));
        for (value, decimals) in [
            (of(|row| Some(row.bare?.rate)), 0),
            (of(|row| Some(row.bare?.cpu)), 0),
            (ratios.to_bare, 2),
            (of(|row| Some(row.bare_behind?.rate)), 0),
            (of(|row| Some(row.bare_behind?.cpu)), 0),
            (ratios.to_bare_behind, 2),
            (ratios.to_python, 1),
            (ratios.behind_to_fresh, 2),
            (of(|row| Some(row.fresh.again?.0)), 0),
            (ratios.again_cpu, 2),
            (ratios.again_rate, 2),
        ] {
            match value {
                Some(value) => drop(write!(text, "| {value:.decimals$} ")),
                None => text.push_str("| – "),
            }
        }
        text.push_str("|\n");
    }
}

fn aims(text: &mut String, groups: &Groups<'_>) {
    text.push_str("\n| aim | connections | found | |\n|---|---|---|---|\n");
    let mut judge = |aim: &str, connections: usize, found: Option<f64>, met: fn(f64) -> bool| {
        if let Some(found) = found {
            let verdict = if met(found) { "met" } else { "missed" };
            let _ = writeln!(text, "| {aim} | {connections} | {found:.2} | {verdict} |");
        }
    };
    for (connections, rows) in groups {
        let ratios = ratios_of(rows);
        judge("at least 0.7 of the bare loop", *connections, ratios.to_bare, |x| x >= 0.7);
        judge("at least 10 times the Python gateway", *connections, ratios.to_python, |x| x >= 10.0);
        judge("behind: at least 0.6 of fresh", *connections, ratios.behind_to_fresh, |x| x >= 0.6);
        let of = |field: Field| median(rows.iter().map(|row| field(&row.fresh)));
        match connections {
            1 => judge("p50 under 1 ms", 1, of(|f| f.p50), |x| x < 1.0),
            256 => judge("p99 under 80 ms", 256, of(|f| f.p99), |x| x < 80.0),
            _ => {}
        }
        let peak = |figures: &Figures| figures.peak;
        let peaks =
            rows.iter().flat_map(|row| [Some(peak(&row.fresh)), row.behind.as_ref().map(peak)]).flatten();
        judge("peak memory under 100 MB", *connections, peaks.reduce(f64::max), |x| x < 100.0);
        judge("a duplicate costs less than half (CPU)", *connections, ratios.again_cpu, |x| x < 0.5);
    }
}
