//! What the interactive view shows, and what keys do to it.

use lwp_profile::{CallGraph, FunctionId, Profile};
use lwp_report::annotate::{self, Sources};
use lwp_report::number::grouped;
use lwp_report::{Options, SortKey, Table, annotate_text, text};
use lwp_symbols::function_name;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The tables that `s` goes through.
const TABLES: [&[SortKey]; 5] = [
    &[SortKey::Dso, SortKey::Sym],
    &[SortKey::Dso],
    &[SortKey::Dso, SortKey::SrcLine],
    &[SortKey::Comm, SortKey::Tid],
    &[SortKey::Tid, SortKey::Dso, SortKey::Sym],
];

/// What `?` shows.
pub const HELP: &str = "\
  up down pgup pgdn home end   move                 (also k j)
  enter                        callers and callees of the function
  a                            the function's code with counts
  /                            search; n and N go on
  s                            by function, module, line, thread
  t                            order by own or inclusive counts
  e                            next event
  q esc                        back, out";

/// Which view is in front.
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
}

/// One line of the table view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its text.
    pub text: String,
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
    pub heading: Vec<String>,
    /// Lines of the table view.
    pub lines: Vec<Line>,
    /// The selected line of the table.
    pub selected: usize,
    /// What is in front.
    pub view: View,
    /// What is searched for, and whether it is still being typed.
    pub search: (String, bool),
    /// Whether help is shown.
    pub help: bool,
    /// Lines that fit on the screen; told by the drawing.
    pub page: usize,
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
            lines: Vec::new(),
            selected: 0,
            view: View::Table,
            search: (String::new(), false),
            help: false,
            page: 20,
        };
        app.rebuild();
        app
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
        let is_heading = |line: &&str| line.starts_with('#');
        self.heading =
            text.lines().take_while(is_heading).filter(|l| *l != "#").map(str::to_owned).collect();
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        self.lines.clear();
        for (index, line) in rows.enumerate() {
            self.lines.push(Line { text: line.to_owned(), row: Some(index) });
            if self.opened == Some(index) {
                let more = self.related(index);
                self.lines.extend(more.into_iter().map(|text| Line { text, row: None }));
            }
        }
    }

    /// Callers and callees of the function of a row.
    fn related(&self, row: usize) -> Vec<String> {
        let Some(function) = self.table.rows.get(row).and_then(|row| row.function) else {
            return vec!["          (callers and callees are known of functions only)".to_owned()];
        };
        let name =
            |id: FunctionId| lwp_report::escape::printable(&function_name(self.profile, id, true));
        let mut callers = self.graph.callers[function.index()].clone();
        callers.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut callees = self.graph.callees[function.index()].clone();
        callees.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let callers = callers.into_iter().map(|(from, count)| {
            let from = from.map_or("(not known: an indirect jump, or the kernel)".to_owned(), name);
            format!("{:>22}  called by  {from}", grouped(count))
        });
        let callees = callees
            .into_iter()
            .map(|(to, count)| format!("{:>22}  calls      {}", grouped(count), name(to)));
        callers.chain(callees).collect()
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
                View::Listing { .. } => self.view = View::Table,
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
            KeyCode::Char('?') | KeyCode::Char('h') => self.help = true,
            code if self.view == View::Table => self.table_key(code),
            _ => {}
        }
        false
    }

    fn table_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.open(),
            KeyCode::Char('a') => self.annotate(),
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

    /// Shows the code of the selected function.
    fn annotate(&mut self) {
        let row = self.selected_row().and_then(|row| self.table.rows.get(row));
        let Some(function) = row.and_then(|row| row.function) else { return };
        let options = annotate::Options { event: self.options.event, intel: false };
        let listing = annotate::function(self.profile, function, options, &mut *self.sources);
        let text = annotate_text::listing(&listing);
        self.view = View::Listing { lines: text.lines().map(str::to_owned).collect(), at: 0 };
    }

    /// Number of lines of the view in front, and its selected one.
    fn position(&mut self) -> (usize, &mut usize) {
        match &mut self.view {
            View::Table => (self.lines.len(), &mut self.selected),
            View::Listing { lines, at } => (lines.len(), at),
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

    /// Goes to the next line that has what is searched for: from the line after (1), this one (0) or
    /// the one before (-1).
    fn find(&mut self, direction: isize) {
        let wanted = self.search.0.to_lowercase();
        if wanted.is_empty() {
            return;
        }
        let hit = |text: &str| text.to_lowercase().contains(&wanted);
        let hits: Vec<bool> = match &self.view {
            View::Table => self.lines.iter().map(|line| hit(&line.text)).collect(),
            View::Listing { lines, .. } => lines.iter().map(|line| hit(line)).collect(),
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
        let mut builder = Builder::new("test", Mode::Exact, Event::exact());
        let module = builder.module(Module { path: "/bin/test".into(), ..Module::default() });
        let thread = builder.thread(Thread { comm: "test".into(), pid: 1, tid: 1 });
        let mut ids = Vec::new();
        for (name, address, count) in [("outer", 0x100, 10), ("inner", 0x200, 90)] {
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
