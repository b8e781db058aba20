//! Table that compares the figures of several binaries. The benchmark measures the binaries alternately.

use std::path::{Path, PathBuf};

use anyhow::Result;

/// Measured value with its name and unit.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    /// Number of decimal places to print.
    pub(crate) digits: usize,
}

pub(crate) fn figure(what: &'static str, value: f64, digits: usize) -> Figure {
    Figure {
        what,
        value,
        digits,
    }
}

/// Medians of each binary's figures, in the order of the binaries.
pub(crate) struct Medians(Vec<Vec<Figure>>);

/// Measures every binary this many times. The binaries alternate, so that a slow phase of the machine affects all of them.
///
/// Every second run has the reverse order, so that no binary is always first.
pub(crate) async fn in_turns(
    binaries: &[PathBuf],
    runs: usize,
    mut measure: impl AsyncFnMut(&Path) -> Result<Vec<Figure>>,
) -> Result<Medians> {
    let mut measured = vec![Vec::new(); binaries.len()];
    for run in 0..runs {
        let mut order: Vec<usize> = (0..binaries.len()).collect();
        if run % 2 == 1 {
            order.reverse();
        }
        for turn in order {
            measured[turn].push(measure(&binaries[turn]).await?);
        }
    }
    let medians = measured.iter().map(|runs| medians(runs));
    Ok(Medians(medians.collect()))
}

impl Medians {
    /// Returns the figures of a single measurement as medians.
    pub(crate) fn of_one(figures: Vec<Figure>) -> Self {
        Self(vec![figures])
    }

    /// Prints a table with this title. For two binaries it includes their ratio.
    pub(crate) fn print(&self, title: &str) {
        let [first, rest @ ..] = self.0.as_slice() else {
            return;
        };
        let heads: &[&str] = if rest.is_empty() {
            &[]
        } else {
            &["this", "against", "ratio"]
        };
        let heads = heads.iter().map(|head| format!("{head:>12}"));
        let line = format!("{title:<44}{}", heads.collect::<String>());
        println!("{}", line.trim_end());
        for (line, figure) in first.iter().enumerate() {
            print!("{:<44}{}", figure.what, figure.text());
            for other in rest.iter().filter_map(|other| other.get(line)) {
                print!("{}{:>12.3}", other.text(), figure.value / other.value);
            }
            println!();
        }
    }

    /// Prints the growth of a figure since the measurement of the smaller fleet, divided by `divisor`, for each binary.
    pub(crate) fn print_growth(&self, smaller: &Self, what: &str, each: &str, divisor: f64) {
        print!("{each:<44}");
        for (large, small) in self.0.iter().zip(&smaller.0) {
            let difference = value(large, what) - value(small, what);
            print!("{:>12.2}", difference / divisor);
        }
        println!();
    }
}

impl Figure {
    fn text(&self) -> String {
        format!("{:>12.digits$}", self.value, digits = self.digits)
    }
}

fn value(figures: &[Figure], what: &str) -> f64 {
    let mut found = figures.iter().filter(|figure| figure.what == what);
    found.next().map_or(f64::NAN, |figure| figure.value)
}

/// Returns the median of each figure over several runs.
fn medians(runs: &[Vec<Figure>]) -> Vec<Figure> {
    let first = runs.first().into_iter().flatten().enumerate();
    let of_line = |(line, figure): (usize, &Figure)| {
        let values = runs.iter().filter_map(|run| run.get(line));
        let value = median(values.map(|figure| figure.value).collect());
        Figure { value, ..*figure }
    };
    first.map(of_line).collect()
}

/// Returns the middle value of the sorted values, or the mean of the two middle ones.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    }
}
