//! Parts of tables: numbers, shares, bars, names, and words on how sure a number is.

use lwp_profile::FunctionId;
use lwp_report::escape::printable;
use lwp_report::number::{grouped, percent, signed};
use maud::{Markup, html};

use crate::request::{Request, View};

/// The certainty of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sure {
    /// Every event was counted.
    Exact,
    /// Samples times their interval.
    Sampled,
    /// Shared out by numbers of calls, or by measured instructions.
    Estimated,
    /// A model's, not a measurement.
    Modelled,
}

impl Sure {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Sampled => "sampled",
            Self::Estimated => "estimated",
            Self::Modelled => "modelled",
        }
    }
}

/// The word that says how sure a number is, in its colour.
pub fn badge(sure: Sure) -> Markup {
    html! { span class={ "badge " (sure.word()) } { (sure.word()) } }
}

/// Returns the certainty of own counts of the chosen event.
pub fn own_is(request: &Request) -> Sure {
    let event = request.subject.profile().events.get(request.event());
    match event {
        Some(event) if event.modelled => Sure::Modelled,
        Some(event) if event.interval.is_some() => Sure::Sampled,
        _ => Sure::Exact,
    }
}

/// Returns the certainty of inclusive counts and contexts.
pub fn inclusive_is(request: &Request) -> Sure {
    if request.picked.inclusive_exact { own_is(request) } else { Sure::Estimated }
}

/// Text of a program's, without what would change a line.
pub fn text(text: &str) -> String {
    printable(text)
}

/// The most characters of a name in a table; its title has all of them.
const LONGEST_NAME: usize = 120;

/// A name as a link. A long one is shortened around the function's own part.
pub fn name(request: &Request, id: FunctionId, view: View) -> Markup {
    let label = text(&request.label(id).name);
    let shown = lwp_symbols::fitted(&label, LONGEST_NAME);
    html! {
        a.fn href=(request.function_link(view, id)) title=(label) { (shown) }
    }
}

/// A part of a whole, as a number with a bar behind it.
pub fn share(part: f64, whole: u64) -> Markup {
    let width = if whole == 0 { 0.0 } else { (100.0 * part / whole as f64).clamp(0.0, 100.0) };
    html! {
        td.share {
            svg.bar width="100%" height="100%" preserveAspectRatio="none" aria-hidden="true" {
                rect width={ (format!("{width:.2}")) "%" } height="100%" {}
            }
            span { (percent(part, whole)) }
        }
    }
}

/// A count; nothing for none.
pub fn count(value: u64) -> Markup {
    html! { td.num { @if value > 0 { (grouped(value)) } } }
}

/// A change since before, with its sign and colour.
pub fn change(before: u64, after: u64) -> Markup {
    let delta = i128::from(after) - i128::from(before);
    let class = match delta {
        0 => "num same",
        1.. => "num more",
        _ => "num less",
    };
    html! { td class=(class) { @if delta == 0 { "=" } @else { (signed(delta)) } } }
}

/// A change in percent of what was before.
pub fn ratio(before: u64, after: u64) -> String {
    match (before, after) {
        (before, after) if before == after => "=".to_owned(),
        (0, _) => "new".to_owned(),
        (_, 0) => "gone".to_owned(),
        _ => format!("{:+.2}%", 100.0 * (after as f64 - before as f64) / before as f64),
    }
}

/// The sentences below a view that say what its numbers are.
pub fn legend(sentences: &[(Sure, &str)]) -> Markup {
    html! {
        aside.legend aria-label="What the numbers are" {
            @for (sure, sentence) in sentences {
                p { (badge(*sure)) " " (sentence) }
            }
        }
    }
}

/// A heat from 0 to 8 for a part of the greatest.
pub fn heat(part: u64, greatest: u64) -> usize {
    if part == 0 || greatest == 0 {
        return 0;
    }
    let ratio = part as f64 / greatest as f64;
    // A hundredth of the greatest is still seen.
    ((ratio.sqrt() * 8.0).ceil() as usize).clamp(1, 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_signs_and_words() {
        assert_eq!(ratio(0, 5), "new");
        assert_eq!(ratio(5, 0), "gone");
        assert_eq!((ratio(7, 7), ratio(100, 150)), ("=".to_owned(), "+50.00%".to_owned()));
        assert!(change(5, 3).into_string().contains("-2"));
        assert!(change(3, 1000).into_string().contains("+997"));
    }

    #[test]
    fn heat_grows_with_the_part() {
        assert_eq!((heat(0, 10), heat(1, 1_000_000), heat(10, 10)), (0, 1, 8));
        assert!(share(f64::NAN, 0).into_string().contains("0.00%"));
    }
}
