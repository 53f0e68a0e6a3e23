//! The interactive view of a profile: a table to search, sort and open up, and the code of a
//! function.

mod app;
mod branches;
mod draw;
mod related;

use lwp_profile::{Profile, Recording};
use lwp_report::Options;
use lwp_symbols::Origins;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::ending::Ending;
use crate::failure::Failure;
use crate::profiles::InputArgs;
use crate::sources::Files;
use app::App;

/// Options of the display of a recording.
#[derive(Debug)]
pub struct Shown<'a> {
    /// The first table.
    pub options: Options,
    /// The recording's location.
    pub input: &'a InputArgs,
}

/// The recording that was moved aside when this one was written. What is wrong with it is not said:
/// the view has the terminal.
fn older(input: &InputArgs) -> Option<Profile> {
    let mut path = input.input.clone().into_os_string();
    path.push(".old");
    let file = std::fs::File::open(path).ok()?;
    let recording = Recording::read(std::io::BufReader::with_capacity(1 << 20, file)).ok()?;
    Some(lwp_symbols::profile(&recording, &input.names().options()).profile)
}

/// Shows the profile until the user has seen enough.
pub fn run(recording: &Recording, profile: &Profile, shown: Shown<'_>) -> Result<Ending, Failure> {
    let mut origins = Origins::new(recording, &shown.input.names.debug_dirs);
    origins.learn(profile);
    let sources = Files::new(Vec::new(), &recording.files).doubting(origins);
    let mut app = App::new(profile, shown.options, sources);
    app.older = Some(Box::new(|| older(shown.input)));
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

/// Returns whether there is a terminal that an interactive view can be shown on.
pub fn interactive() -> bool {
    use std::io::IsTerminal;
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !dumb && std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}
