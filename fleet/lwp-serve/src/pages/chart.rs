//! A history as a picture: a line that has a step where a count has one.

use lwp_query::history::{Point, Series};
use maud::{Markup, html};

use super::{count, links, percent, short, text};

/// Height of the picture, and of the band in it where points are, in pixels.
const HEIGHT: f64 = 170.0;
const BAND: (f64, f64) = (24.0, 140.0);
/// The band from left to right, in per cent.
const WIDE: (f64, f64) = (1.5, 98.5);
/// Points of a picture: the latest ones.
const MOST: usize = 500;

/// The places of a series' points.
struct Scale {
    first: usize,
    last: usize,
    least: i64,
    most: i64,
}

impl Scale {
    fn of(series: &Series) -> Self {
        let last = series.points.len();
        let first = last.saturating_sub(MOST);
        let values = series.points[first..].iter().map(|point| point.value);
        let least = values.clone().min().unwrap_or(0);
        Self { first, last, least, most: values.max().unwrap_or(0) }
    }

    fn x(&self, index: usize) -> f64 {
        let of = (self.last - self.first).saturating_sub(1).max(1) as f64;
        WIDE.0 + (WIDE.1 - WIDE.0) * (index - self.first) as f64 / of
    }

    fn y(&self, value: i64) -> f64 {
        if self.least == self.most {
            return f64::midpoint(BAND.0, BAND.1);
        }
        // In floating point: the two may lie further apart than a number of 64 bits says.
        let (least, most) = (self.least as f64, self.most as f64);
        BAND.1 - (BAND.1 - BAND.0) * (value as f64 - least) / (most - least)
    }
}

/// The picture. A point leads to the comparison with the one before it.
pub fn chart(series: &Series, event: &str) -> Markup {
    let scale = Scale::of(series);
    let points = || (scale.first..scale.last).map(|index| (index, &series.points[index]));
    let percentage = |x: f64| format!("{x:.3}%");
    html! {
        svg.chart width="100%" height=(HEIGHT) role="img" aria-label={ "Counts of " (text(&series.benchmark)) " by commit" } {
            line.grid x1="0" x2="100%" y1=(BAND.1) y2=(BAND.1) {}
            @for (index, point) in points().skip(1) {
                @let before = series.points[index - 1].value;
                @let (x, y) = (percentage(scale.x(index)), scale.y(point.value));
                line x1=(percentage(scale.x(index - 1))) x2=(x) y1=(scale.y(before)) y2=(scale.y(before)) {}
                line x1=(x) x2=(x) y1=(scale.y(before)) y2=(y) {}
            }
            @for (index, point) in points() {
                a href=(target(series, index, event)) class=(class(series, index)) {
                    title { (title(series, index, point)) }
                    circle cx=(percentage(scale.x(index))) cy=(scale.y(point.value)) r="4" {}
                }
            }
            text x="8" y="14" { (count(scale.most)) }
            @if scale.most != scale.least { text x="8" y=(BAND.1 + 16.0) { (count(scale.least)) } }
        }
    }
}

fn title(series: &Series, index: usize, point: &Point) -> String {
    let change = index
        .checked_sub(1)
        .map(|before| format!(", {}", percent(series.points[before].value, point.value)));
    let note =
        if point.note.is_empty() { String::new() } else { format!(": {}", text(&point.note)) };
    format!(
        "{} {}: {}{}{note}",
        short(&point.commit),
        point.started,
        count(point.value),
        change.unwrap_or_default()
    )
}

fn class(series: &Series, index: usize) -> String {
    let step = series.steps.iter().find(|step| step.at == index);
    let mut class = match step {
        Some(step) if step.after > step.before => "step up".to_owned(),
        Some(_) => "step down".to_owned(),
        None => "point".to_owned(),
    };
    if !series.points[index].note.is_empty() {
        class += " noted";
    }
    class
}

/// The comparison of a point with the one before it.
pub fn target(series: &Series, index: usize, event: &str) -> String {
    let before = &series.points[index.saturating_sub(1)].commit;
    let filter = links::benchmark(&series.project, &series.benchmark);
    let words = [
        ("a", before.as_str()),
        ("b", &series.points[index].commit),
        ("e", event),
        ("filter", &filter),
    ];
    links::query("compare", &words)
}
