//! Frames on a terminal.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::{execute, terminal};
use ratatui::layout::{Constraint, Layout};
use ratatui::prelude::CrosstermBackend;
use ratatui::style::Style;
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::termios::isatty;

use super::{Frames, Order, Piece, Viewer};
use crate::failure::Failure;
use crate::requests::Requests;

/// Longest wait for a key before reports are looked at again.
const PATIENCE: Duration = Duration::from_millis(50);

/// The terminal, and where the program's own output waits meanwhile.
pub struct Screen {
    frames: Frames,
    requests: Arc<Requests>,
    terminal: ratatui::Terminal<CrosstermBackend<File>>,
    kept: File,
    order: Order,
    paused: bool,
    /// True if the end was asked for.
    over: bool,
}

impl Screen {
    /// Takes the terminal over. What the program would write to it is kept, and shown at the end;
    /// from it, the program reads nothing.
    pub fn open(frames: Frames, requests: Arc<Requests>) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::io("the terminal", &error);
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").map_err(failed)?;
        let kept = kept().map_err(failed)?;
        divert(&kept).map_err(failed)?;
        terminal::enable_raw_mode().map_err(failed)?;
        let mut backend = CrosstermBackend::new(tty);
        execute!(backend, terminal::EnterAlternateScreen).map_err(failed)?;
        let terminal = ratatui::Terminal::new(backend).map_err(failed)?;
        Ok(Self { frames, requests, terminal, kept, order: Order::Now, paused: false, over: false })
    }

    fn draw(&mut self) -> io::Result<()> {
        let (frames, order, paused) = (&self.frames, self.order, self.paused);
        self.terminal.draw(|frame| {
            let areas = Layout::vertical([
                Constraint::Length(2),
                Constraint::Min(1),
                Constraint::Length(1),
            ]);
            let [top, middle, bottom] = areas.areas(frame.area());
            let width = usize::from(frame.area().width);
            let columns = Frames::columns_in(width);
            let heading = vec![Line::from(frames.heading()), Line::from(columns)];
            frame.render_widget(Paragraph::new(heading), top);
            let rows = frames.rows(order);
            let visible = rows.iter().take(usize::from(middle.height));
            let text: Text<'_> =
                visible.map(|row| Line::from(frames.line_in(row, width))).collect();
            frame.render_widget(Paragraph::new(text), middle);
            let (order, paused) = match (order, paused) {
                (order, true) => (order, "p go on"),
                (order, false) => (order, "p pause"),
            };
            let other = if order == Order::Now { "t by total" } else { "t by now" };
            let foot = format!(" {other}   {paused}   q quit");
            frame.render_widget(Paragraph::new(foot).style(Style::new().reversed()), bottom);
        })?;
        Ok(())
    }

    /// Answers the keys that were pressed, waiting a little for one.
    fn keys(&mut self) -> io::Result<()> {
        while event::poll(PATIENCE)? {
            let Event::Key(key) = event::read()? else { return self.draw() };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('c') if control => self.stop(),
                KeyCode::Char('q') | KeyCode::Esc => self.stop(),
                KeyCode::Char('t') => {
                    let now = self.order == Order::Now;
                    self.order = if now { Order::Total } else { Order::Now };
                }
                KeyCode::Char('p') => self.paused = !self.paused,
                _ => {}
            }
            self.draw()?;
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.over = true;
        self.requests.stop();
    }

    fn watch(&mut self, pieces: &Receiver<Piece>) -> io::Result<()> {
        self.draw()?;
        loop {
            let over = loop {
                match pieces.try_recv() {
                    Ok(piece) => self.frames.take(piece),
                    Err(TryRecvError::Empty) => break false,
                    Err(TryRecvError::Disconnected) => break true,
                }
            };
            let due = self.frames.until_due().is_zero() && !self.paused;
            if (due || over) && self.frames.advance(over) {
                self.draw()?;
            }
            if over {
                return Ok(());
            }
            self.keys()?;
        }
    }

    /// Gives the terminal back, and shows what the program has written.
    fn close(&mut self) -> io::Result<()> {
        let _ = terminal::disable_raw_mode();
        execute!(self.terminal.backend_mut(), terminal::LeaveAlternateScreen)?;
        let mut tty = OpenOptions::new().write(true).open("/dev/tty")?;
        self.kept.rewind()?;
        let mut bytes = [0; 1 << 16];
        loop {
            match self.kept.read(&mut bytes)? {
                0 => return tty.write_all(self.frames.text(20, Order::Total).as_bytes()),
                read => tty.write_all(&bytes[..read])?,
            }
        }
    }
}

impl Viewer for Screen {
    fn show(mut self: Box<Self>, pieces: &Receiver<Piece>) -> Result<bool, Failure> {
        let watched = self.watch(pieces);
        if watched.is_err() {
            // A program that nobody watches is not held up: it runs to its end.
            pieces.iter().for_each(drop);
        }
        let closed = self.close();
        let result = watched.and(closed).map_err(|error| Failure::io("the terminal", &error));
        result.map(|()| self.over)
    }
}

/// A file without a name.
fn kept() -> io::Result<File> {
    let path: PathBuf = std::env::temp_dir().join(format!("lwp-top-{}", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Leads the standard streams away from the terminal, for the program and for lwp itself.
fn divert(kept: &File) -> io::Result<()> {
    if isatty(io::stdout()) {
        dup2_stdout(kept)?;
    }
    if isatty(io::stderr()) {
        dup2_stderr(kept)?;
    }
    if isatty(io::stdin()) {
        dup2_stdin(File::open("/dev/null")?)?;
    }
    Ok(())
}
