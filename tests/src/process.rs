//! Other processes seen from outside: their children, their state, and signals to them.
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// The exit status as a shell shows it: the code, or 128 + the signal.
pub fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Sends a signal to all processes, as simultaneously as possible.
pub fn signal(name: &str, pids: &[u32]) {
    let signal = match name {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "QUIT" => Signal::QUIT,
        "KILL" => Signal::KILL,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        "ALRM" => Signal::ALARM,
        "TERM" => Signal::TERM,
        "CONT" => Signal::CONT,
        "STOP" => Signal::STOP,
        _ => return signal_by_command(name, pids),
    };
    for pid in pids {
        let pid = Pid::from_raw(*pid as i32).expect("not 0");
        // A process that is already gone is not an error here.
        let _ = kill_process(pid, signal);
    }
}

/// For signals that have no safe name here, for example those of real time, which are numbers.
fn signal_by_command(name: &str, pids: &[u32]) {
    let mut command = Command::new("kill");
    command.arg("-s").arg(name).args(pids.iter().map(u32::to_string));
    let _ = command.stderr(std::process::Stdio::null()).status().expect("kill(1)");
}

/// A process that must not outlive its test: it gets SIGKILL if the test fails before it has ended the process.
pub struct KilledOnFailure(pub u32);

impl Drop for KilledOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            signal("KILL", &[self.0]);
        }
    }
}

pub fn children(pid: u32) -> Vec<u32> {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|text| text.parse().ok())
        .collect()
}

/// The state letter in /proc/PID/stat: R, S, D, T (stopped), t (traced), Z. `None` when there is no such process.
pub fn state(pid: u32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// Returns true if a process of this group still runs.
pub fn has_group(group: u32) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    // After the name: the state, the parent and the group.
    let fields = |stat: &str| -> Option<(String, u32)> {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    stats.filter_map(|stat| fields(&stat)).any(|(state, its_group)| its_group == group && state != "Z")
}

pub fn executable(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The value in kB after `key` in /proc/PID/status, converted to bytes.
pub fn status_bytes(pid: u32, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// Calls `look` until it returns a value. The time limit only ends a test that hangs. No result depends on it.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "waited two minutes for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a child of `recorder` runs `program`, and returns its pid.
pub fn target_of(recorder: u32, program: &Path) -> u32 {
    let program = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    wait_for("the target to start", || {
        children(recorder).into_iter().find(|&pid| executable(pid).as_deref() == Some(&program))
    })
}
