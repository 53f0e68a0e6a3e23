//! State of the interactive view, and the effect of keys on it.

use lwp_profile::diff::{By, compare};
use lwp_profile::{CallGraph, FunctionId, Measured, Neighbours, Profile};
use lwp_report::annotate::{self, Sources};
use lwp_report::number::{grouped, percent};
use lwp_report::{Options, SortKey, Table, annotate_text, diff, text};
use lwp_symbols::function_name;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::branches::Branches;
use super::related::{self, Neighbour};

/// The tables that `s` goes through.
const TABLES: [&[SortKey]; 5] = [
    &[SortKey::Dso, SortKey::Sym],
    &[SortKey::Dso],
    &[SortKey::Dso, SortKey::SrcLine],
    &[SortKey::Comm, SortKey::Tid],
    &[SortKey::Tid, SortKey::Dso, SortKey::Sym],
];

/// Characters that lines move by to the side, and the most that they do.
const SIDE: usize = 16;
const WIDEST: usize = 4096;

/// The text that `?` shows.
pub const HELP: &str = "\
up down pgup pgdn  move; also k j
enter              callers and callees; in the tree, the branch
left right         close and open a branch of the tree
< >                to the sides of long lines; also left right
g i                call tree; from callees to callers
c                  the code, at its hottest line; also a
d                  changes since FILE.old, the recording before
/ n N              search, and on
s                  by function, module, line, thread
t                  order by own or inclusive counts
e                  next event
q esc              back, out";

/// The view in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The table.
    Table,
    /// A function's code, or another text, from its first visible line on.
    Listing {
        /// Lines.
        lines: Vec<String>,
        /// The selected line.
        at: usize,
    },
    /// The call tree.
    Tree {
        /// Its branches.
        branches: Box<Branches>,
        /// Their lines.
        lines: Vec<String>,
        /// The selected line.
        at: usize,
    },
}

/// One line of the table view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its text.
    pub text: String,
    /// Its text, cut to the width of the screen.
    pub narrow: String,
    /// The row of the table that it belongs to; `None` for what is opened below a row.
    pub row: Option<usize>,
}

/// The state of the view.
pub struct App<'a> {
    profile: &'a Profile,
    graph: CallGraph,
    sources: Box<dyn Sources + 'a>,
    options: Options,
    table: Table,
    opened: Option<usize>,
    /// Heading of the table.
    heading: Vec<String>,
    /// Heading of the table, cut to the width of the screen.
    narrow_heading: Vec<String>,
    /// Lines of the table view.
    pub lines: Vec<Line>,
    /// The selected line of the table.
    pub selected: usize,
    /// The view in front.
    pub view: View,
    /// Views that it was opened from, the most recent one last.
    below: Vec<View>,
    /// Finds the recording from before, to compare with.
    pub older: Option<Box<dyn Fn() -> Option<Profile> + 'a>>,
    /// The text to search for, and true while it is being typed.
    pub search: (String, bool),
    /// True if help is shown.
    pub help: bool,
    /// Lines that fit on the screen; told by the drawing.
    pub page: usize,
    /// Characters of each line that are left of the screen.
    pub shift: usize,
    /// Characters of a line of the screen; told by the drawing.
    width: usize,
}

impl std::fmt::Debug for App<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("selected", &self.selected).finish_non_exhaustive()
    }
}

impl<'a> App<'a> {
    /// The view of `profile`, starting with the table that `options` describe.
    pub fn new(profile: &'a Profile, options: Options, sources: impl Sources + 'a) -> Self {
        let mut app = Self {
            profile,
            graph: CallGraph::of(profile),
            sources: Box::new(sources),
            table: Table::default(),
            options,
            opened: None,
            heading: Vec::new(),
            narrow_heading: Vec::new(),
            lines: Vec::new(),
            selected: 0,
            view: View::Table,
            below: Vec::new(),
            older: None,
            search: (String::new(), false),
            help: false,
            page: 20,
            shift: 0,
            width: usize::MAX,
        };
        app.rebuild();
        app
    }

    /// Fits the table into lines of `width` characters.
    pub fn set_width(&mut self, width: usize) {
        if self.width != width {
            self.width = width;
            self.relist();
        }
    }

    fn rebuild(&mut self) {
        self.table = Table::new(self.profile, &self.options);
        self.opened = None;
        self.selected = 0;
        self.relist();
    }

    /// Makes the lines of the table view anew.
    fn relist(&mut self) {
        let text = text::table(&self.table, None);
        let narrow = text::fitting(&self.table, None, self.width);
        let is_heading = |line: &&str| line.starts_with('#');
        let heading = |text: &str| -> Vec<String> {
            let lines = text.lines().take_while(is_heading);
            lines.filter(|line| *line != "#").map(str::to_owned).collect()
        };
        self.heading = heading(&text);
        self.narrow_heading = heading(&narrow);
        let rows = text.lines().zip(narrow.lines()).filter(|(line, _)| !line.starts_with('#'));
        self.lines.clear();
        for (index, (line, narrow)) in rows.enumerate() {
            let (text, narrow) = (line.to_owned(), narrow.to_owned());
            self.lines.push(Line { text, narrow, row: Some(index) });
            if self.opened == Some(index) {
                let more = self.related(index).into_iter();
                let width = self.width;
                let line =
                    |it: Neighbour| Line { text: it.text(), narrow: it.fitting(width), row: None };
                self.lines.extend(more.map(line));
            }
        }
    }

    /// Callers and callees of the function of a row.
    fn related(&self, row: usize) -> Vec<Neighbour> {
        let note = |text: &str| vec![Neighbour::note(text)];
        let Some(function) = self.table.rows.get(row).and_then(|row| row.function) else {
            return note("          (callers and callees are known of functions only)");
        };
        let name =
            |id: FunctionId| lwp_report::escape::printable(&function_name(self.profile, id, true));
        if let Some(measured) = Measured::of(self.profile, self.options.event) {
            return self.measured(&measured, function, &name);
        }
        let [callers, callees] =
            related::sides(self.profile, &self.graph, function, self.options.event);
        let line = |how: &str, count: u64, name: String| {
            Neighbour::new(format!("{:>22}  {how}  ", grouped(count)), name, String::new())
        };
        let callers = callers.into_iter().map(|(from, count)| {
            let from = from.map_or("(not known: an indirect jump, or the kernel)".to_owned(), name);
            line("called by", count, from)
        });
        let callees = callees
            .into_iter()
            .map(|(to, count)| line("calls    ", count, to.map_or(String::new(), name)));
        let both: Vec<Neighbour> = callers.chain(callees).collect();
        match both.is_empty() {
            true => note("          (no callers and no callees were seen)"),
            false => both,
        }
    }

    /// Measured callers and callees of a function, the most expensive first.
    fn measured(
        &self,
        measured: &Measured<'_>,
        function: FunctionId,
        name: &dyn Fn(FunctionId) -> String,
    ) -> Vec<Neighbour> {
        let sure = if measured.is_exact() { "" } else { "~" };
        let lines = |(mut side, how): (Neighbours, &str)| {
            side.sort_by_key(|(_, calls, cost)| std::cmp::Reverse((*cost, *calls)));
            let line = |(other, calls, cost): (Option<FunctionId>, u64, u64)| {
                let before = format!("{:>22}  {how}  ", grouped(calls));
                let after = format!(": {}{sure}", percent(cost as f64, self.table.total));
                Neighbour::new(
                    before,
                    other.map_or("(a thread began here, or a handler)".to_owned(), name),
                    after,
                )
            };
            side.into_iter().map(line).collect::<Vec<Neighbour>>()
        };
        let [callers, callees] = measured.around(function);
        [(callers, "called by"), (callees, "calls    ")].into_iter().flat_map(lines).collect()
    }

    /// The lines above the view in front.
    pub fn heading(&self) -> Vec<String> {
        // The table's last line names its columns, and others its numbers.
        let run = self.heading.iter().take(2).cloned();
        match &self.view {
            View::Table if self.shift == 0 => self.narrow_heading.clone(),
            View::Table => self.heading.clone(),
            View::Listing { .. } => run.collect(),
            View::Tree { branches, .. } => {
                let by = match self.profile.has_contexts() {
                    true => "measured instructions",
                    false => "numbers of calls",
                };
                let estimated = branches
                    .inferred()
                    .then(|| format!("# Contexts are estimates: counts are shared out by {by}"));
                let columns = match branches.inverted {
                    false => "#  Total    Self  Function, and what it calls",
                    true => "#   Self          Function, and its callers",
                };
                run.chain(estimated).chain([columns.to_owned()]).collect()
            }
        }
    }

    /// Handles a key. True when the view is over.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return true;
        }
        if self.search.1 {
            self.type_search(key.code);
            return false;
        }
        if std::mem::take(&mut self.help) {
            return false;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => match self.view {
                View::Table => return true,
                // From code that was opened in the tree the way leads back there.
                _ => {
                    self.shift = 0;
                    self.view = self.below.pop().unwrap_or(View::Table);
                }
            },
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-(self.page as isize)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.step(self.page as isize),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Char('/') => self.search = (String::new(), true),
            KeyCode::Char('n') => self.find(1),
            KeyCode::Char('N') => self.find(-1),
            KeyCode::Char('?') | KeyCode::Char('h') => self.show_help(),
            KeyCode::Char('<') => self.shift = self.shift.saturating_sub(SIDE),
            KeyCode::Char('>') => self.shift = (self.shift + SIDE).min(WIDEST),
            KeyCode::Left if !matches!(self.view, View::Tree { .. }) => {
                self.shift = self.shift.saturating_sub(SIDE);
            }
            KeyCode::Right if !matches!(self.view, View::Tree { .. }) => {
                self.shift = (self.shift + SIDE).min(WIDEST);
            }
            code => match self.view {
                View::Table => self.table_key(code),
                View::Tree { .. } => self.tree_key(code),
                View::Listing { .. } => {}
            },
        }
        false
    }

    /// Shows the keys: in a box where that fits, else as a text to move in.
    fn show_help(&mut self) {
        let lines: Vec<String> = HELP.lines().map(str::to_owned).collect();
        match lines.len() + 2 <= self.page {
            true => self.help = true,
            false => self.open_view(View::Listing { lines, at: 0 }),
        }
    }

    /// Puts a view in front; leaving it leads back.
    fn open_view(&mut self, view: View) {
        self.shift = 0;
        let before = std::mem::replace(&mut self.view, view);
        self.below.push(before);
    }

    /// Opens the call tree, from callers to callees or the other way.
    fn open_tree(&mut self, inverted: bool) {
        let branches = Branches::new(self.profile, self.options.event, inverted);
        let lines = branches.lines(self.profile);
        let view = View::Tree { branches: Box::new(branches), lines, at: 0 };
        match self.view {
            View::Tree { .. } => self.view = view,
            _ => self.open_view(view),
        }
    }

    fn tree_key(&mut self, code: KeyCode) {
        let View::Tree { branches, lines, at } = &mut self.view else { return };
        match code {
            KeyCode::Enter | KeyCode::Right | KeyCode::Left | KeyCode::Char('l') => {
                let open = match code {
                    KeyCode::Enter => None,
                    code => Some(code != KeyCode::Left),
                };
                branches.set_open(*at, open);
                *lines = branches.lines(self.profile);
            }
            KeyCode::Char('c' | 'a') => {
                let function = branches.function(*at);
                function.into_iter().for_each(|function| self.annotate(function));
            }
            KeyCode::Char('i') => {
                let inverted = !branches.inverted;
                self.open_tree(inverted);
            }
            KeyCode::Char('g') => self.open_tree(false),
            _ => {}
        }
    }

    fn table_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.open(),
            KeyCode::Char('a' | 'c') => {
                let row = self.selected_row().and_then(|row| self.table.rows.get(row));
                let function = row.and_then(|row| row.function);
                function.into_iter().for_each(|function| self.annotate(function));
            }
            KeyCode::Char('g') => self.open_tree(false),
            KeyCode::Char('i') => self.open_tree(true),
            KeyCode::Char('d') => self.compare(),
            KeyCode::Char('t') => {
                self.options.children = !self.options.children;
                self.rebuild();
            }
            KeyCode::Char('e') => {
                self.options.event = (self.options.event + 1) % self.profile.events.len().max(1);
                self.rebuild();
            }
            KeyCode::Char('s') => {
                let now = TABLES.iter().position(|keys| *keys == self.options.sort.as_slice());
                let next = now.map_or(0, |now| (now + 1) % TABLES.len());
                self.options.sort = TABLES[next].to_vec();
                self.rebuild();
            }
            _ => {}
        }
    }

    /// Opens the selected row up, or closes it.
    fn open(&mut self) {
        let Some(row) = self.selected_row() else { return };
        self.opened = if self.opened == Some(row) { None } else { Some(row) };
        self.relist();
        let at = self.lines.iter().position(|line| line.row == Some(row));
        self.selected = at.unwrap_or(0);
    }

    fn selected_row(&self) -> Option<usize> {
        // What is opened below a row belongs to it.
        self.lines.get(..=self.selected)?.iter().rev().find_map(|line| line.row)
    }

    /// Shows what has changed since the recording from before.
    fn compare(&mut self) {
        let before = self.older.as_ref().and_then(|older| older());
        let name = self.profile.events.get(self.options.event).map_or("", |event| &event.name);
        let place = before.as_ref().and_then(|before| before.event(name));
        let text = match before.zip(place) {
            None => "There is no recording from before with this event.\n\
                     lwp record keeps the last one as FILE.old."
                .to_owned(),
            Some((before, event)) => {
                let compared = compare(
                    &before,
                    self.profile,
                    By::Function,
                    &lwp_symbols::matched(&before, self.profile, &[]),
                );
                diff::text(&diff::View {
                    diff: Some(&compared),
                    intervals: diff::intervals(&before, self.profile, name),
                    event,
                    name: name.to_owned(),
                    ..Default::default()
                })
            }
        };
        self.open_view(View::Listing { lines: text.lines().map(str::to_owned).collect(), at: 0 });
    }

    /// Shows the code of a function, at its hottest line.
    fn annotate(&mut self, function: FunctionId) {
        let options = annotate::Options { event: self.options.event, intel: false };
        let listing = annotate::function(self.profile, function, options, &mut *self.sources);
        let doubts = listing.doubts.iter().map(|doubt| format!("warning: {doubt}"));
        let text = annotate_text::listing(&listing);
        let lines: Vec<String> = doubts.chain(text.lines().map(str::to_owned)).collect();
        let at = match listing.interpreted {
            true => by_share(&lines),
            false => hottest(&listing, lines.len()),
        };
        self.open_view(View::Listing { lines, at });
    }

    /// Number of lines of the view in front, and its selected one.
    fn position(&mut self) -> (usize, &mut usize) {
        match &mut self.view {
            View::Table => (self.lines.len(), &mut self.selected),
            View::Listing { lines, at } | View::Tree { lines, at, .. } => (lines.len(), at),
        }
    }

    fn step(&mut self, by: isize) {
        let (len, at) = self.position();
        *at = at.saturating_add_signed(by).min(len.saturating_sub(1));
    }

    fn type_search(&mut self, code: KeyCode) {
        match code {
            KeyCode::Esc => self.search = (String::new(), false),
            KeyCode::Enter => self.search.1 = false,
            KeyCode::Backspace => {
                self.search.0.pop();
            }
            KeyCode::Char(c) => {
                self.search.0.push(c);
                self.find(0);
            }
            _ => {}
        }
    }

    /// Goes to the next line that has what is searched for: from the line after (1), this one (0)
    /// or the one before (-1).
    fn find(&mut self, direction: isize) {
        let wanted = self.search.0.to_lowercase();
        if wanted.is_empty() {
            return;
        }
        let hit = |text: &str| text.to_lowercase().contains(&wanted);
        let hits: Vec<bool> = match &self.view {
            View::Table => self.lines.iter().map(|line| hit(&line.text)).collect(),
            View::Listing { lines, .. } | View::Tree { lines, .. } => {
                lines.iter().map(|line| hit(line)).collect()
            }
        };
        let (len, at) = self.position();
        let start = *at;
        let found = (0..len).map(|distance| match direction {
            -1 => (start + 2 * len - 1 - distance) % len,
            by => (start + by as usize + distance) % len,
        });
        if let Some(found) = found.into_iter().find(|line| hits[*line]) {
            *at = found;
        }
    }
}

/// The line of a listing's text, which has `lines`, with the hottest instruction.
fn hottest(listing: &annotate::Listing, lines: usize) -> usize {
    let counts = listing.lines.iter().map(|line| match line {
        annotate::Line::Instruction { count, .. } => *count,
        _ => 0,
    });
    let hottest = counts.enumerate().max_by_key(|(at, count)| (*count, std::cmp::Reverse(*at)));
    // The text has a title and headings before the listing's lines.
    hottest.map_or(0, |(at, _)| lines.saturating_sub(listing.lines.len()) + at)
}

/// The line with the greatest share, by which lines begin; the first of several.
fn by_share(lines: &[String]) -> usize {
    let share = |line: &String| -> Option<f64> {
        line.split_whitespace().next()?.strip_suffix('%')?.parse().ok()
    };
    let shares = lines.iter().enumerate().filter_map(|(at, line)| Some((at, share(line)?)));
    let greatest = shares.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
    greatest.map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use lwp_profile::{
        Builder, CallKind, Event, Frame, Function, Location, Mode, Module, Origin, Thread, Values,
    };

    use super::*;

    struct NoSources;

    impl Sources for NoSources {
        fn line(&mut self, _: &str, _: u32) -> Option<String> {
            None
        }
    }

    /// `outer`, which counts 10, calls `inner`, which counts 90, three times.
    fn profile() -> Profile {
        profile_of(["outer", "inner"])
    }

    /// A profile in which a function of the first name calls one of the second.
    fn profile_of(names: [&str; 2]) -> Profile {
        let mut builder = Builder::new("test", Mode::Exact, Event::exact());
        let module = builder.module(Module { path: "/bin/test".into(), ..Module::default() });
        let thread = builder.thread(Thread { comm: "test".into(), pid: 1, tid: 1 });
        let mut ids = Vec::new();
        for (name, address, count) in [(names[0], 0x100, 10), (names[1], 0x200, 90)] {
            let function = builder.function(Function {
                module,
                name: name.into(),
                address,
                origin: Origin::Symbol,
                ..Function::default()
            });
            let frame = Frame { function, ..Frame::default() };
            let bytes = [0x90];
            let location = builder.location(Location {
                module,
                address,
                bytes: bytes[..].into(),
                frames: [frame].into(),
            });
            let stack = builder.stack(vec![location]);
            builder.sample(thread, stack, &Values(vec![count, 0, 0, 0, 0, 0, 0, 0]));
            ids.push((function, location));
        }
        builder.call(Some(ids[0].1), ids[1].0, CallKind::Direct, 3);
        builder.finish()
    }

    fn press(app: &mut App<'_>, keys: &str) -> bool {
        let mut over = false;
        for c in keys.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                c => KeyCode::Char(c),
            };
            over = app.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        over
    }

    #[test]
    fn rows_are_searched_opened_and_annotated() {
        let profile = profile();
        let mut app = App::new(&profile, Options::default(), NoSources);
        assert!(app.lines[0].text.contains("inner"));
        press(&mut app, "/outer\n");
        assert_eq!(app.selected, 1);
        press(&mut app, "\n");
        assert!(app.lines[2].text.contains("calls      inner"), "{:?}", app.lines);
        press(&mut app, "\n");
        assert_eq!(app.lines.len(), 2);
        press(&mut app, "a");
        let View::Listing { lines, .. } = &app.view else { panic!("no listing") };
        assert!(lines.iter().any(|line| line.contains("nop")), "{lines:?}");
        assert!(!press(&mut app, "q"));
        assert_eq!(app.view, View::Table);
        assert!(press(&mut app, "q"));
    }

    #[test]
    fn the_tree_is_opened_turned_round_and_left_by_the_way_it_was_entered() {
        let profile = profile();
        let mut app = App::new(&profile, Options::default(), NoSources);
        let lines = |app: &App<'_>| match &app.view {
            View::Tree { lines, .. } | View::Listing { lines, .. } => lines.clone(),
            View::Table => Vec::new(),
        };
        press(&mut app, "g");
        // outer is the only way down, and open.
        let shown = lines(&app);
        assert!(shown[0].contains("100.00%") && shown[0].ends_with("- outer"), "{shown:?}");
        assert!(shown[1].contains("90.00%") && shown[1].ends_with("  inner"), "{shown:?}");
        // Columns are those of the tree, not of the table.
        let heading = app.heading();
        assert_eq!(heading.last().unwrap(), "#  Total    Self  Function, and what it calls");
        assert!(heading.iter().any(|line| line.contains("estimates")), "{heading:?}");
        press(&mut app, "\n");
        assert_eq!(lines(&app).len(), 1);
        press(&mut app, "\ni");
        let shown = lines(&app);
        assert!(shown[0].ends_with("+ inner") && shown[1].ends_with("  outer"), "{shown:?}");
        press(&mut app, "\n");
        assert!(lines(&app)[1].trim_end().ends_with("outer"), "{:?}", lines(&app));
        press(&mut app, "c");
        let View::Listing { lines: code, at } = &app.view else { panic!("no code") };
        assert!(code[*at].contains("nop"), "not at the hottest line: {}", code[*at]);
        assert!(!app.heading().iter().any(|line| line.contains("Self")), "{:?}", app.heading());
        press(&mut app, "q");
        assert!(matches!(app.view, View::Tree { .. }));
        assert!(!press(&mut app, "q") && app.view == View::Table);
        // Three lines have no room for a box: the keys are a text.
        app.page = 3;
        press(&mut app, "?");
        assert!(lines(&app).len() > 8 && !app.help);
        press(&mut app, "q");
        assert!(press(&mut app, "q"));
    }

    /// Promise: R50: comparisons and tables fit a screen, and names stay readable.
    #[test]
    fn trees_show_functions_names_in_narrow_terminals() {
        let outer = "a_namespace::of_great_length::Outer<unsigned long>::run_everything(int)";
        let inner = "another_namespace::of_great_length::Inner<unsigned long>::insert(int)";
        let profile = profile_of([outer, inner]);
        let mut app = App::new(&profile, Options::default(), NoSources);
        press(&mut app, "g");
        let View::Tree { branches, lines, .. } = &app.view else { panic!("no tree") };
        for width in [45, 60, 80] {
            let fitting = |at: usize| branches.fitting(at, &lines[at], width);
            assert!(fitting(0).ends_with("run_everything") && fitting(1).ends_with("::insert"));
            assert!((0..2).all(|at| fitting(at).chars().count() <= width), "{}", fitting(0));
            assert!(fitting(0).contains("- ") && fitting(1).starts_with("  90.00%"));
        }
        assert_eq!(branches.fitting(0, &lines[0], 200), lines[0]);
    }

    #[test]
    fn changes_since_the_recording_before_are_shown() {
        let after = profile();
        let mut app = App::new(&after, Options::default(), NoSources);
        press(&mut app, "d");
        let shown = |app: &App<'_>| match &app.view {
            View::Listing { lines, .. } => lines.join("\n"),
            _ => String::new(),
        };
        assert!(shown(&app).contains("no recording from before"), "{}", shown(&app));
        press(&mut app, "q");
        app.older = Some(Box::new(|| {
            let mut before = profile();
            before.samples[0].values.0[0] = 4;
            Some(before)
        }));
        press(&mut app, "d");
        assert!(shown(&app).contains("outer") && shown(&app).contains("+6"), "{}", shown(&app));
        assert!(!shown(&app).contains("inner"), "{}", shown(&app));
    }

    #[test]
    fn order_event_and_table_change() {
        let profile = profile();
        let mut app = App::new(&profile, Options::default(), NoSources);
        press(&mut app, "t");
        assert!(app.lines[0].text.contains("outer"), "{:?}", app.lines);
        press(&mut app, "ts");
        assert_eq!(app.lines.len(), 1);
        press(&mut app, "e");
        assert!(app.lines.is_empty());
        // Nothing is selected, and no key minds.
        press(&mut app, "\najkn/x\n?q");
    }
}
