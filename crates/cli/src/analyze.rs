//! `heaptrack analyze`: the page over one or several traces.
//!
//! Receives: files, and where to listen. Returns: the address on stdout, then serves until it is stopped. Must hold: a
//! single file that is no trace is reported before the server starts; of several files, the page shows which one is
//! bad. In an ssh session, the command to type on the user's own machine is printed.
use crate::check::all_rules;
use crate::trouble::unreadable;
use crate::viewer::find_page;
use crate::{dataset, say};
use anyhow::Context;
use clap::Parser;
use heaptrack_trace::OpenTrace;
use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use web::{NamedText, Options, Server, TraceStore};

const HELP: &str = "\
Examples:
  heaptrack analyze heaptrack.ls.42.htz                   opens the browser
  heaptrack analyze new.htz --compare old.htz             what changed
  heaptrack analyze --no-browser --port 8000 a.htz b.htz  two traces, at a fixed port
  heaptrack analyze /data/heap --where version=1.5 --compare-where version=1.4   the mean of many traces

Only this machine can connect, and only with the token in the address. Over ssh, the command for your own machine is printed.

Exit code: 0; 2 wrong usage, or a file that cannot be read.";

/// Opens the page in the browser: a timeline, trees, a flame graph and more, for one or several traces.
#[derive(Clone, Debug, Parser)]
#[command(name = "heaptrack analyze", bin_name = "heaptrack analyze", version, after_help = HELP)]
pub struct Analyze {
    /// A trace to compare with. All numbers are then differences to it, also for several files.
    #[arg(short = 'd', long, visible_alias = "diff", value_name = "BASE", value_hint = clap::ValueHint::FilePath)]
    pub compare: Option<PathBuf>,
    /// Open the traces of a dataset that fulfil a condition, as one: FILE is the folder of the dataset.
    #[arg(long = "where", value_name = "WHERE", conflicts_with = "compare")]
    pub condition: Option<String>,
    /// With --where: the traces of the same dataset to compare with.
    #[arg(long, value_name = "WHERE", requires = "condition")]
    pub compare_where: Option<String>,
    /// Known leaks, in LSan's format: lines of leak:NAME.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub suppressions: Vec<PathBuf>,
    /// Do not use the suppressions that are built into the program.
    #[arg(long)]
    pub disable_embedded_suppressions: bool,
    /// Do not use our own list of known leaks.
    #[arg(long)]
    pub disable_builtin_suppressions: bool,
    /// Rules that tell which code is yours, as for `heaptrack print`.
    #[arg(long, value_name = "RULES", value_hint = clap::ValueHint::FilePath)]
    pub rules: Option<PathBuf>,
    /// The port. Without it, any free port.
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "N")]
    pub port: u16,
    /// Listen on this address instead of localhost. Anyone who knows the token can then connect from other machines.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    pub listen: Option<std::net::IpAddr>,
    /// Print the address, and do not open a browser.
    #[arg(long)]
    pub no_browser: bool,
    /// The traces. One that is still being recorded is followed.
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
}

pub fn run(options: &Analyze) -> anyhow::Result<ExitCode> {
    let Some(condition) = &options.condition else { return serve(options) };
    let [dataset] = options.files.as_slice() else {
        anyhow::bail!("--where opens one dataset, and there are {} files", options.files.len())
    };
    // The page reads the profiles until the process ends.
    let profile = dataset::profile(dataset, condition)?;
    let base = options.compare_where.as_deref().map(|base| dataset::profile(dataset, base)).transpose()?;
    let mut selected = options.clone();
    selected.files = vec![profile.path.clone()];
    selected.compare = base.as_ref().map(|base| base.path.clone());
    serve(&selected)
}

fn serve(options: &Analyze) -> anyhow::Result<ExitCode> {
    let store = store(options)?;
    let server = Server::bind(options.listen.unwrap_or(Ipv4Addr::LOCALHOST.into()), options.port)?;
    let mut address = server.address();
    if options.compare.is_some() {
        // Every file is compared to the last one of the store, which is the base.
        let runs: String = (1..options.files.len()).map(|run| format!("&runs={run}")).collect();
        address.push_str(&format!("#/summary?compare={}{runs}", options.files.len()));
    }
    writeln!(std::io::stdout(), "{address}")
        .and_then(|()| std::io::stdout().flush())
        .context("cannot print the address")?;
    tell(options, &server);
    store.start();
    if !options.no_browser && is_at_hand() {
        open_browser(&address);
    }
    server.serve(store)?;
    Ok(ExitCode::SUCCESS)
}

fn store(options: &Analyze) -> anyhow::Result<Arc<TraceStore>> {
    let files: Vec<_> = options.files.iter().chain(&options.compare).map(|path| path.as_path()).collect();
    // With several files, the page shows which one is bad and opens the others.
    if let [file] = files.as_slice() {
        look(file)?;
    }
    let settings = Options {
        rules: all_rules(options.rules.as_deref())?,
        suppressions: options.suppressions.iter().map(|file| named_text(file)).collect::<anyhow::Result<_>>()?,
        builtin: !options.disable_builtin_suppressions,
        embedded: !options.disable_embedded_suppressions,
        tool: crate::TOOL.to_owned(),
    };
    Ok(TraceStore::new(&files, settings, find_page)?)
}

/// Opens a file, so that a bad one gives the same error as in every other command. Of a trace only the beginning is read.
/// A heap profile of another tool is small, and is read to its end.
pub fn look(file: &Path) -> anyhow::Result<()> {
    let opened = match heaptrack_trace::heap_profile_kind(file) {
        Ok(Some(_)) => OpenTrace::open(file).map(drop),
        _ => heaptrack_trace::open_without_names(file).map(drop),
    };
    opened.map_err(|error| unreadable(file, &error))
}

/// Reads a file of rules or suppressions.
pub fn named_text(path: &Path) -> anyhow::Result<NamedText> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    Ok(NamedText { name: path.display().to_string(), text })
}

fn tell(options: &Analyze, server: &Server) {
    let port = server.port();
    if let Some(address) = options.listen.filter(|address| !address.is_loopback()) {
        say(format_args!(
            "heaptrack: listening on {address}, not encrypted: anyone who knows the token can read the traces and their sources"
        ));
    }
    if let Some((user, host)) = over_ssh() {
        say(format_args!("heaptrack: on your own machine, run: ssh -N -L {port}:127.0.0.1:{port} {user}{host}"));
        say(format_args!("heaptrack: then open the address above in a browser there"));
    }
    say(format_args!("heaptrack: Press Ctrl-C to stop"));
}

/// In an ssh session, returns the user (with `@`) and the address under which the client reaches this machine.
fn over_ssh() -> Option<(String, String)> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    let host = connection.split(' ').nth(2)?.to_owned();
    let user = std::env::var("USER").map(|user| format!("{user}@")).unwrap_or_default();
    Some((user, host))
}

/// Returns true if a browser that we start appears on the user's own screen.
pub fn is_at_hand() -> bool {
    let has_screen = std::env::var_os("DISPLAY").is_some() || std::env::var_os("WAYLAND_DISPLAY").is_some();
    std::env::var_os("BROWSER").is_some() || has_screen && std::env::var_os("SSH_CONNECTION").is_none()
}

/// Opens the address in a browser, without waiting for it. If there is no browser, the user still has the address.
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

/// Parses the value of `--listen`.
pub fn parse_listen(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(Ipv4Addr::LOCALHOST.into()),
        _ => text.parse().map_err(|_| "must be an address of this machine, as 127.0.0.1 or 0.0.0.0".to_owned()),
    }
}
