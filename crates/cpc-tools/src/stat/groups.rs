//! Rows made of a sample of all processors: grouped, ordered, and no more than requested.
//!
//! Promise: T10

use std::cmp::Ordering;

use super::layout::Layout;
use crate::failure::Failure;

/// Groups of processors that rows stand for instead of single processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Cores.
    Cores,
    /// Sockets.
    Sockets,
    /// So many groups of about the same size, of neighbouring rows.
    Bins(usize),
}

impl Grouping {
    /// The argument of `-A`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "cor" | "core" => Ok(Self::Cores),
            "soc" => Ok(Self::Sockets),
            number => match number.parse() {
                Ok(bins) if bins > 0 => Ok(Self::Bins(bins)),
                _ => Err("-A takes cor, soc, or the number of bins".to_owned()),
            },
        }
    }

    /// The title of its column.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cores => "cor",
            Self::Sockets => "soc",
            Self::Bins(_) => "BIN",
        }
    }
}

/// A row before it is printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Seconds since the start.
    pub seconds: f64,
    /// The processor, core, socket or bin.
    pub id: u32,
    /// Number of processors in the row.
    pub size: u64,
    /// Clock cycles.
    pub tsc: u64,
    /// Counts.
    pub counts: Vec<u64>,
}

impl Row {
    /// Adds what another processor has counted.
    fn add(&mut self, other: &Self) {
        self.seconds = self.seconds.max(other.seconds);
        self.size += other.size;
        self.tsc = self.tsc.wrapping_add(other.tsc);
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.wrapping_add(*count);
        }
    }

    /// Divides clock cycles and counts by the number of processors.
    #[must_use]
    pub fn mean(mut self) -> Self {
        let size = self.size.max(1);
        self.tsc /= size;
        for count in &mut self.counts {
            *count /= size;
        }
        self
    }
}

/// A column that rows are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Id,
    Size,
    Tsc,
    /// By number: in which column it stands depends on the specification.
    Pic(u32),
}

/// The argument of `-k`: columns, the most important first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(Vec<(Column, bool)>);

impl Keys {
    /// Columns by their titles, with commas in between; a minus sign before one says: largest
    /// first.
    pub fn parse(text: &str) -> Result<Self, String> {
        let key = |word: &str| {
            let (name, falling) = match word.strip_prefix('-') {
                Some(name) => (name, true),
                None => (word, false),
            };
            let column = match name {
                "cpu" | "cor" | "soc" | "BIN" | "bin" => Column::Id,
                "sze" => Column::Size,
                "tsc" => Column::Tsc,
                _ => {
                    let number = name.strip_prefix("pic").and_then(|number| number.parse().ok());
                    Column::Pic(number.ok_or_else(|| format!("-k: there is no column '{name}'"))?)
                }
            };
            Ok((column, falling))
        };
        text.split(',').map(key).collect::<Result<_, _>>().map(Self)
    }

    /// Refuses counters that nobody uses.
    pub fn check(&self, layout: &Layout) -> Result<(), Failure> {
        let unknown = self.0.iter().find_map(|(column, _)| match column {
            Column::Pic(pic) if !layout.specs.iter().any(|spec| spec.pics.contains(pic)) => {
                Some(*pic)
            }
            _ => None,
        });
        match unknown {
            Some(pic) => Err(Failure::Usage(format!("-k: there is no column 'pic{pic}'"))),
            None => Ok(()),
        }
    }

    /// Orders rows of a specification with these counters. Rows that are equal stay as they are.
    fn sort(&self, rows: &mut [Row], pics: &[u32]) {
        rows.sort_by(|a, b| {
            let compare = |(column, falling): &(Column, bool)| {
                let value = |row: &Row| match column {
                    Column::Id => u64::from(row.id),
                    Column::Size => row.size,
                    Column::Tsc => row.tsc,
                    Column::Pic(pic) => {
                        let place = pics.iter().position(|known| known == pic);
                        place.and_then(|place| row.counts.get(place)).copied().unwrap_or(0)
                    }
                };
                let order = value(a).cmp(&value(b));
                if *falling { order.reverse() } else { order }
            };
            let different = self.0.iter().map(compare).find(|order| order.is_ne());
            different.unwrap_or(Ordering::Equal)
        });
    }
}

/// The way from samples to rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// `-A`.
    pub grouping: Option<Grouping>,
    /// `-m`.
    pub mean: bool,
    /// `-k`.
    pub keys: Keys,
    /// `-o`.
    pub limit: Option<usize>,
}

impl Shape {
    /// The rows of one sample: `rows` has one a processor, in the order of their numbers, and
    /// `pics` are the counters that were used.
    pub fn rows(&self, mut rows: Vec<Row>, layout: &Layout, pics: &[u32]) -> Vec<Row> {
        match self.grouping {
            None => self.keys.sort(&mut rows, pics),
            Some(Grouping::Bins(bins)) => {
                self.keys.sort(&mut rows, pics);
                rows = binned(&rows, bins);
            }
            Some(by) => {
                rows = grouped(&rows, layout, by);
                self.keys.sort(&mut rows, pics);
            }
        }
        if self.mean && self.grouping.is_some() {
            rows = rows.into_iter().map(Row::mean).collect();
        }
        rows.truncate(self.limit.unwrap_or(usize::MAX));
        rows
    }
}

/// One row a core or socket, in the order of their numbers.
fn grouped(rows: &[Row], layout: &Layout, by: Grouping) -> Vec<Row> {
    let mut groups: Vec<Row> = Vec::new();
    for row in rows {
        let place = layout.cpus.iter().find(|place| place.cpu == row.id);
        let id = place.map_or(0, |place| match by {
            Grouping::Cores => place.core,
            _ => place.socket,
        });
        match groups.iter_mut().find(|group| group.id == id) {
            Some(group) => group.add(row),
            None => groups.push(Row { id, ..row.clone() }),
        }
    }
    groups.sort_by_key(|group| group.id);
    groups
}

/// `bins` groups of neighbouring rows; the first ones are larger by one where they cannot be equal.
fn binned(rows: &[Row], bins: usize) -> Vec<Row> {
    let bins = bins.min(rows.len()).max(1);
    let (size, larger) = (rows.len() / bins, rows.len() % bins);
    let mut rest = rows;
    let mut groups = Vec::new();
    for bin in 0..bins {
        let (members, behind) = rest.split_at(size + usize::from(bin < larger));
        rest = behind;
        let Some((first, others)) = members.split_first() else {
            break;
        };
        let mut group = Row { id: bin as u32, ..first.clone() };
        others.iter().for_each(|row| group.add(row));
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Columned, Place};
    use super::*;

    /// Two sockets of two cores with two processors each.
    fn layout() -> Layout {
        let place = |cpu: u32| Place { cpu, core: cpu % 4, socket: cpu % 4 / 2 };
        let spec = Columned { text: "a,b".to_owned(), pics: vec![2, 5] };
        Layout { specs: vec![spec], cpus: (0..8).map(place).collect() }
    }

    /// Processor n counts 10 n and 7 - n.
    fn rows() -> Vec<Row> {
        let row = |cpu: u32| {
            let counts = vec![u64::from(10 * cpu), u64::from(7 - cpu)];
            Row { seconds: f64::from(cpu), id: cpu, size: 1, tsc: 100, counts }
        };
        (0..8).map(row).collect()
    }

    fn shaped(shape: &Shape) -> Vec<(u32, u64, Vec<u64>)> {
        let rows = shape.rows(rows(), &layout(), &[2, 5]);
        rows.into_iter().map(|row| (row.id, row.size, row.counts)).collect()
    }

    #[test]
    fn cores_and_sockets_are_sums_or_means() {
        let mut shape = Shape { grouping: Some(Grouping::Cores), ..Shape::default() };
        assert_eq!(shaped(&shape)[1], (1, 2, vec![60, 8]), "processors 1 and 5");
        shape.mean = true;
        assert_eq!(shaped(&shape)[1], (1, 2, vec![30, 4]));
        shape = Shape { grouping: Some(Grouping::Sockets), ..Shape::default() };
        assert_eq!(shaped(&shape), [(0, 4, vec![100, 18]), (1, 4, vec![180, 10])]);
        let rows = shape.rows(rows(), &layout(), &[2, 5]);
        assert_eq!((rows[0].seconds, rows[0].tsc), (5.0, 400));
    }

    #[test]
    fn bins_hold_neighbours_of_the_order_asked_for() {
        let keys = Keys::parse("-pic2").unwrap();
        let shape = Shape { grouping: Some(Grouping::Bins(3)), keys, ..Shape::default() };
        let expected = [(0, 3, vec![180, 3]), (1, 3, vec![90, 12]), (2, 2, vec![10, 13])];
        assert_eq!(shaped(&shape), expected);
        let many = Shape { grouping: Some(Grouping::Bins(100)), ..Shape::default() };
        assert_eq!(shaped(&many).len(), 8, "a bin holds something");
    }

    #[test]
    fn rows_are_ordered_and_limited() {
        let keys = Keys::parse("-tsc,pic5").unwrap();
        let shape = Shape { keys, limit: Some(3), ..Shape::default() };
        let ids: Vec<u32> = shaped(&shape).iter().map(|row| row.0).collect();
        assert_eq!(ids, [7, 6, 5]);
        for wrong in ["", "pic", "time,cpu", "cpu,", "picx"] {
            assert!(Keys::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Keys::parse("cpu,pic3").unwrap().check(&layout()).is_err());
        assert!(Keys::parse("sze,-cor,pic2").unwrap().check(&layout()).is_ok());
    }

    #[test]
    fn groupings_have_names_or_numbers() {
        assert_eq!(Grouping::parse("cor"), Ok(Grouping::Cores));
        assert_eq!(Grouping::parse("soc"), Ok(Grouping::Sockets));
        assert_eq!(Grouping::parse("4"), Ok(Grouping::Bins(4)));
        for wrong in ["0", "-1", "", "cpu"] {
            assert!(Grouping::parse(wrong).is_err(), "{wrong}");
        }
    }
}
