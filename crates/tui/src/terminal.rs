//! The terminal: taken over when the screen opens, and given back on every exit.
//!
//! Must hold: whatever ends us, also a panic or a signal, the terminal is as it was.
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{cursor, execute};
use ratatui::Terminal as Drawing;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use std::io::{self, IsTerminal, Stdout, stdout};

/// Why nothing can be shown, as a sentence. `None` if it can.
pub fn refusal() -> Option<String> {
    if !stdout().is_terminal() {
        return Some("stdout is not a terminal; `heaptrack print FILE` writes a report instead".into());
    }
    match std::env::var("TERM").as_deref() {
        Ok("dumb") => {
            Some("this terminal cannot be drawn on (TERM=dumb); `heaptrack print FILE` writes a report instead".into())
        }
        Ok("") | Err(_) => Some("the kind of this terminal is not known: set TERM, for example to xterm".into()),
        Ok(_) => None,
    }
}

pub(crate) struct Terminal {
    drawing: Drawing<CrosstermBackend<Stdout>>,
    has_mouse: bool,
}

impl Terminal {
    pub(crate) fn open(has_mouse: bool) -> io::Result<Terminal> {
        enter(has_mouse).inspect_err(|_| leave())?;
        let drawing = Drawing::new(CrosstermBackend::new(stdout())).inspect_err(|_| leave())?;
        Ok(Terminal { drawing, has_mouse })
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.drawing.draw(draw).map(drop)
    }

    /// Gives the terminal back, stops this process, and takes the terminal again when the process goes on.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        leave();
        signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
        self.resume()
    }

    /// Takes the terminal again, after something else may have changed it.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        enter(self.has_mouse)?;
        // `clear` would ask the terminal for the cursor, and the thread that reads keys would take the answer.
        let size = self.drawing.size()?;
        self.drawing.resize(Rect { x: 0, y: 0, width: size.width, height: size.height })
    }

    /// False if the terminal is gone.
    pub(crate) fn is_there(&self) -> bool {
        rustix::termios::tcgetattr(stdout()).is_ok()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

fn enter(has_mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, cursor::Hide)?;
    if has_mouse {
        execute!(stdout(), EnableMouseCapture)?;
    }
    Ok(())
}

/// Errors are ignored, because the terminal may be gone.
fn leave() {
    let _ = execute!(stdout(), DisableMouseCapture, cursor::Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
}
