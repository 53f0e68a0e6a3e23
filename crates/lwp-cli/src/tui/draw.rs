//! Drawing the interactive view.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::app::{App, HELP, View};

/// The last line of each view.
const TABLE: &str =
    " ? help  enter open  c code  g call tree  d changes  / search  s table  q quit";
const TREE: &str = " ? help  enter open  c code  i from callees to callers  / search  q back";
const TREE_INFERRED: &str =
    " ? help  enter open  c code  i from callees to callers  q back  (estimated)";

/// The colour of a line whose first word is a share in percent: the more, the hotter.
fn heat(line: &str) -> Style {
    let share = line.split_whitespace().next().and_then(|word| word.strip_suffix('%'));
    match share.and_then(|share| share.parse::<f64>().ok()) {
        Some(share) if share >= 10.0 => Style::new().fg(Color::Red),
        Some(share) if share >= 1.0 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

/// Draws everything.
pub fn frame(frame: &mut Frame<'_>, app: &mut App<'_>) {
    app.set_width(usize::from(frame.area().width));
    let heading = fitting(app.heading(), usize::from(frame.area().width), &app.view, app.shift);
    let areas = Layout::vertical([
        Constraint::Length(heading.len() as u16),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [top, middle, bottom] = areas.areas(frame.area());
    app.page = usize::from(middle.height.max(1));
    let dim = Style::new().add_modifier(Modifier::DIM);
    let text: Text<'_> = heading.iter().map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Paragraph::new(text).style(dim), top);
    match &app.view {
        View::Table => {
            // Whoever moves to the side wants to see the rest.
            let whole = app.shift > 0;
            let lines = app.lines.iter();
            let lines: Vec<&str> =
                lines.map(|it| if whole { it.text.as_str() } else { it.narrow.as_str() }).collect();
            body(frame, middle, &lines, (app.selected, app.shift));
        }
        View::Tree { branches, lines, at } if app.shift == 0 => {
            let width = usize::from(middle.width);
            let lines = lines.iter().enumerate();
            let lines: Vec<String> =
                lines.map(|(index, line)| branches.fitting(index, line, width)).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            body(frame, middle, &lines, (*at, 0));
        }
        View::Listing { lines, at } | View::Tree { lines, at, .. } => {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            body(frame, middle, &lines, (*at, app.shift));
        }
    }
    let (pattern, typing) = &app.search;
    let foot = match typing {
        true => format!("/{pattern}"),
        false => match &app.view {
            View::Tree { branches, .. } if branches.inferred() => TREE_INFERRED.to_owned(),
            View::Tree { .. } => TREE.to_owned(),
            View::Listing { .. } => " ? help   / search   q back".to_owned(),
            View::Table => TABLE.to_owned(),
        },
    };
    frame.render_widget(Paragraph::new(foot).style(Style::new().reversed()), bottom);
    if app.help {
        help(frame);
    }
}

/// The lines above a view in a width: the names of columns move with their columns, other lines are
/// broken between words.
fn fitting(heading: Vec<String>, width: usize, view: &View, shift: usize) -> Vec<String> {
    let columns = heading.len().saturating_sub(1);
    let mut out = Vec::new();
    for (at, line) in heading.into_iter().enumerate() {
        if at == columns && !matches!(view, View::Listing { .. }) {
            out.push(from(&line, shift).to_owned());
            continue;
        }
        let mut part = String::new();
        for word in line.split(' ') {
            if !part.is_empty() && part.chars().count() + 1 + word.chars().count() > width {
                out.push(std::mem::replace(&mut part, "#".to_owned()));
            }
            if !part.is_empty() {
                part.push(' ');
            }
            part.push_str(word);
        }
        out.push(part);
    }
    out
}

/// A line without its first characters.
fn from(line: &str, shift: usize) -> &str {
    line.char_indices().nth(shift).map_or("", |(at, _)| &line[at..])
}

/// The lines around the selected one, and what of them begins at a column.
fn body(frame: &mut Frame<'_>, area: Rect, lines: &[&str], (selected, shift): (usize, usize)) {
    let height = usize::from(area.height);
    let first = selected.saturating_sub(height / 2).min(lines.len().saturating_sub(height));
    // As everywhere: who wants no colours says so.
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let visible = lines.iter().enumerate().skip(first).take(height);
    let text: Text<'_> = visible
        .map(|(index, line)| {
            let style = if plain { Style::new() } else { heat(line) };
            let style = if index == selected { style.reversed() } else { style };
            Line::from(from(line, shift)).style(style)
        })
        .collect();
    frame.render_widget(Paragraph::new(text), area);
}

fn help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let width = 66.min(area.width);
    let height = (HELP.lines().count() as u16 + 2).min(area.height);
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title("keys")), place);
}

#[cfg(test)]
mod tests {
    use lwp_profile::Profile;
    use lwp_report::Options;
    use lwp_report::annotate::Sources;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    struct NoSources;

    impl Sources for NoSources {
        fn line(&mut self, _: &str, _: u32) -> Option<String> {
            None
        }
    }

    #[test]
    fn shares_have_colours() {
        assert_eq!(heat("  90.00%   5 f").fg, Some(Color::Red));
        assert_eq!(heat("   1.00%   5 f").fg, Some(Color::Yellow));
        assert_eq!(heat("   0.99%   5 f").fg, None);
        assert_eq!(heat("f [a.out]: 90.00%").fg, None);
    }

    #[test]
    fn headings_are_broken_between_words_and_columns_move() {
        let heading = vec!["# Total is an estimate".to_owned(), "#  Self  Name".to_owned()];
        let expected = ["# Total is", "# an", "# estimate", "#  Self  Name"];
        assert_eq!(fitting(heading.clone(), 10, &View::Table, 0), expected);
        assert_eq!(fitting(heading, 40, &View::Table, 9), ["# Total is an estimate", "Name"]);
        assert_eq!((from("häßlich", 2), from("ab", 2)), ("ßlich", ""));
    }

    #[test]
    fn every_size_of_terminal_is_drawn() {
        let profile = Profile::default();
        for (width, height) in [(1, 1), (10, 3), (80, 24), (300, 100)] {
            let mut app = App::new(&profile, Options::default(), NoSources);
            app.help = true;
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|area| frame(area, &mut app)).unwrap();
        }
    }
}
