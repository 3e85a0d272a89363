//! `heaptrack analyze`: the page over one or several traces.
//!
//! Given: files, and where to listen. Gives back: the address, on stdout, then serves until it is stopped. What must hold: a file that is no trace is
//! told before anything is opened; where no browser can be (ssh), the line to type is printed instead.
use crate::args::Analyze;
use crate::say;
use anyhow::Context;
use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use web::{Options, Server, Shelf};

pub fn run(options: &Analyze) -> anyhow::Result<ExitCode> {
    let shelf = shelf(options)?;
    let server = Server::bind(options.listen.unwrap_or(Ipv4Addr::LOCALHOST.into()), options.port)?;
    let mut address = server.address();
    if options.compare.is_some() {
        address.push_str(&format!("#/summary?compare={}", options.files.len()));
    }
    writeln!(std::io::stdout(), "{address}")
        .and_then(|()| std::io::stdout().flush())
        .context("cannot say the address")?;
    tell(options, &server);
    shelf.start();
    if !options.no_browser && is_at_hand() {
        open_browser(&address);
    }
    server.serve(shelf)?;
    Ok(ExitCode::SUCCESS)
}

fn shelf(options: &Analyze) -> anyhow::Result<Arc<Shelf>> {
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| format!("{}", path.display()));
    let rules = options.rules.as_deref().map(read).transpose()?.unwrap_or_default();
    let mut suppressions = String::new();
    for file in &options.suppressions {
        suppressions.push_str(&read(file)?);
        suppressions.push('\n');
    }
    let files: Vec<_> = options.files.iter().chain(&options.compare).map(|path| path.as_path()).collect();
    let settings = Options {
        rules,
        suppressions,
        builtin: !options.disable_builtin_suppressions,
        embedded: !options.disable_embedded_suppressions,
        tool: concat!("heaptrack ", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    Ok(Shelf::new(&files, settings)?)
}

fn tell(options: &Analyze, server: &Server) {
    let port = server.port();
    if let Some(address) = options.listen.filter(|address| !address.is_loopback()) {
        say(format_args!(
            "heaptrack: listening on {address}, not encrypted: whoever knows the token can read the traces and their sources"
        ));
    }
    if let Some((user, host)) = over_ssh() {
        say(format_args!("heaptrack: on your own machine type: ssh -N -L {port}:127.0.0.1:{port} {user}{host}"));
        say(format_args!("heaptrack: then open the address above there"));
    }
    say(format_args!("heaptrack: Ctrl-C ends it"));
}

/// Who is logged in from elsewhere, and what this machine is called there.
fn over_ssh() -> Option<(String, String)> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    let host = connection.split(' ').nth(2)?.to_owned();
    let user = std::env::var("USER").map(|user| format!("{user}@")).unwrap_or_default();
    Some((user, host))
}

/// A browser that we start would be seen by whoever sits here.
pub fn is_at_hand() -> bool {
    let has_screen = std::env::var_os("DISPLAY").is_some() || std::env::var_os("WAYLAND_DISPLAY").is_some();
    std::env::var_os("BROWSER").is_some() || has_screen && std::env::var_os("SSH_CONNECTION").is_none()
}

/// Nothing is waited for: whoever has no browser has the address.
pub fn open_browser(address: &str) {
    let own = std::env::var_os("BROWSER").into_iter();
    for program in own.chain(["xdg-open", "gio", "wslview", "x-www-browser"].map(OsString::from)) {
        let mut command = Command::new(&program);
        if program == "gio" {
            command.arg("open");
        }
        command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.spawn().is_ok() {
            return;
        }
    }
}

/// As `--listen` has it.
pub fn parse_listen(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => text.parse().map_err(|_| "an address of this machine, as 127.0.0.1 or 0.0.0.0".to_owned()),
    }
}
