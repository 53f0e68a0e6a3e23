//! Colours for terminals.

use anstyle::{AnsiColor, Style};

use crate::escape;

/// The use of a terminal's colours in text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paint {
    /// Text alone.
    #[default]
    Plain,
    /// Text between ANSI escape sequences.
    Ansi,
}

/// From this part of the whole on, a row is hot.
const HOT: f64 = 0.05;
/// From this part of the whole on, a row is warm.
const WARM: f64 = 0.005;

impl Paint {
    /// `text`, which heads something.
    pub fn heading(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    /// `text`, which stands beside what matters.
    pub fn aside(self, text: &str) -> String {
        self.with(Style::new().dimmed(), text)
    }

    /// `text` about this part of the whole, between 0 and 1.
    pub fn heat(self, part: f64, text: &str) -> String {
        let style = Style::new();
        match part {
            part if part >= HOT => self.with(style.fg_color(Some(AnsiColor::Red.into())), text),
            part if part >= WARM => self.with(style.fg_color(Some(AnsiColor::Green.into())), text),
            _ => text.to_owned(),
        }
    }

    /// `text` about a count that has changed so much: less is better.
    pub fn change(self, delta: i128, text: &str) -> String {
        let color = match delta {
            0 => return text.to_owned(),
            1.. => AnsiColor::Red,
            _ => AnsiColor::Green,
        };
        self.with(Style::new().fg_color(Some(color.into())), text)
    }

    /// `text`, a line of source code.
    pub fn source(self, text: &str) -> String {
        self.with(Style::new().fg_color(Some(AnsiColor::Blue.into())), text)
    }

    fn with(self, style: Style, text: &str) -> String {
        match self {
            Self::Ansi if !text.is_empty() => format!("{style}{}{style:#}", escape::lines(text)),
            _ => text.to_owned(),
        }
    }
}

/// Returns `part` as a share of `whole`, between 0 and 1.
pub(crate) fn part(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_surround_text_and_nothing_else() {
        assert_eq!(Paint::Plain.heat(0.5, "50.00%"), "50.00%");
        assert_eq!(Paint::Ansi.heat(0.5, " 50.00%"), "\u{1b}[31m 50.00%\u{1b}[0m");
        assert_eq!(Paint::Ansi.heat(0.01, "1.00%"), "\u{1b}[32m1.00%\u{1b}[0m");
        assert_eq!(Paint::Ansi.heat(0.001, "0.10%"), "0.10%");
        assert_eq!(Paint::Ansi.change(0, "+0"), "+0");
        assert_eq!(Paint::Ansi.change(-3, "-3"), "\u{1b}[32m-3\u{1b}[0m");
        assert_eq!(Paint::Ansi.heading(""), "");
        assert_eq!((part(1, 0), part(1, 4)), (0.0, 0.25));
    }
}
