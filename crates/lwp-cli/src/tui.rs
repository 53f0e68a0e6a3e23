//! The interactive view of a profile: a table to search, sort and open up, and the code of a function.

mod app;
mod draw;

use lwp_profile::{Profile, Recording};
use lwp_report::Options;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::ending::Ending;
use crate::failure::Failure;
use crate::sources::Files;
use app::App;

/// Shows the profile until the user has seen enough.
pub fn run(recording: &Recording, profile: &Profile, options: Options) -> Result<Ending, Failure> {
    let mut app = App::new(profile, options, Files::new(Vec::new(), &recording.files));
    let failed = |error: std::io::Error| Failure::io("the terminal", &error);
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let result = loop {
        if let Err(error) = terminal.draw(|frame| draw::frame(frame, &mut app)) {
            break Err(failed(error));
        }
        match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                if app.key(key) {
                    break Ok(Ending::SUCCESS);
                }
            }
            Ok(_) => {}
            Err(error) => break Err(failed(error)),
        }
    };
    ratatui::restore();
    result
}

/// Whether there is a terminal that an interactive view can be shown on.
pub fn interactive() -> bool {
    use std::io::IsTerminal;
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !dumb && std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}
