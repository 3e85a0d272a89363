//! A terminal in which a test types and reads: a session of tmux.
//!
//! Must hold: every session has a server of its own, which ends with it.
use crate::process::wait_for;
use crate::run::heaptrack;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Tmux {
    socket: String,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The end of the line that says how the command ended.
const ENDED: &str = "ended with ";

impl Tmux {
    /// Runs `heaptrack WORDS` in a terminal of this size. `env` are variables for it.
    pub fn heaptrack(size: (u16, u16), env: &[(&str, &str)], words: &[&str]) -> Tmux {
        let quoted = |word: &str| format!("'{word}'");
        let mut line = String::from("env LANG=C.UTF-8");
        for (name, value) in env {
            line.push_str(&format!(" {name}={}", quoted(value)));
        }
        line.push_str(&format!(" {}", quoted(heaptrack().to_str().expect("a path of text"))));
        for word in words {
            line.push_str(&format!(" {}", quoted(word)));
        }
        // The settings of the terminal before and after must be the same.
        let shell = format!(
            "before=$(stty -g); {line}; echo {ENDED}$?; [ \"$before\" = \"$(stty -g)\" ] && echo restored; exec sleep 600"
        );
        Tmux::start(size, &["sh", "-c", &shell])
    }

    /// An interactive shell, for job control.
    pub fn shell(size: (u16, u16)) -> Tmux {
        Tmux::start(size, &["env", "LANG=C.UTF-8", "PS1=ready ", "bash", "--norc", "--noprofile", "-i"])
    }

    fn start(size: (u16, u16), command: &[&str]) -> Tmux {
        let socket = format!("heaptrack-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let tmux = Tmux { socket };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        tmux.run(&[&["new-session", "-d", "-x", &width, "-y", &height, "--"], command].concat());
        tmux
    }

    fn run(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-u", "-f", "/dev/null", "-L", &self.socket]).args(words).env_remove("TMUX");
        let output = command.output().expect("tmux can be run");
        assert!(output.status.success(), "tmux {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Presses keys, by their names in tmux.
    pub fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Types a text.
    pub fn type_text(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
    }

    /// Presses or releases the left button of the mouse, or moves it (`kind` 0, 3 with a release, 32).
    pub fn mouse(&self, kind: u8, x: u16, y: u16, is_release: bool) {
        let end = if is_release { 'm' } else { 'M' };
        self.type_text(&format!("\x1b[<{kind};{};{}{end}", x + 1, y + 1));
    }

    pub fn resize(&self, width: u16, height: u16) {
        self.run(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// The screen as text.
    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// The screen with escape sequences for colours.
    pub fn coloured_screen(&self) -> String {
        self.run(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen shows all of these texts, and returns it.
    pub fn shows(&self, texts: &[&str]) -> String {
        self.becomes(&format!("{texts:?}"), |screen| texts.iter().all(|text| screen.contains(text)))
    }

    /// Waits until the screen is as wanted, and returns it.
    pub fn becomes(&self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(what, || {
                last = self.screen();
                is_wanted(&last).then(|| last.clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("the screen does not show {what}:\n{}", self.screen()))
    }

    /// Waits for the end of the command, and returns its exit code. The terminal must be as it was before.
    pub fn code(&self) -> i32 {
        let screen = self.shows(&[ENDED, "restored"]);
        let line = screen.lines().find_map(|line| line.strip_prefix(ENDED)).expect("the exit code");
        line.trim().parse().expect("a number")
    }

    /// The process that runs in the terminal with this name of its executable.
    pub fn process(&self, name: &str) -> u32 {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]).trim().parse().expect("a pid");
        wait_for(name, || {
            crate::process::children(shell).into_iter().find(|pid| {
                crate::process::executable(*pid).is_some_and(|path| path.file_name().is_some_and(|file| file == name))
            })
        })
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        let _ = command.args(["-L", &self.socket, "kill-server"]).env_remove("TMUX").output();
    }
}
