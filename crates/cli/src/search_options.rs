//! The options that say where debug files are.
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct SearchOptions {
    /// A folder with debug files; may be given several times.
    #[arg(long = "debug-path", value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    debug_paths: Vec<PathBuf>,
    /// A copy of the file system in which the program ran.
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    sysroot: Option<PathBuf>,
    /// Fetch missing debug files from the servers in DEBUGINFOD_URLS, after the program has ended.
    #[arg(long)]
    debuginfod: bool,
}

impl SearchOptions {
    /// Returns a sentence if the options cannot be followed. `no_symbols`: no names are looked up.
    pub fn trouble(&self, no_symbols: bool) -> Option<String> {
        let folders = self.debug_paths.iter().map(|path| ("debug-path", path));
        let folders: Vec<(&str, &PathBuf)> = folders.chain(self.sysroot.iter().map(|path| ("sysroot", path))).collect();
        if let Some((option, path)) = folders.iter().find(|(_, path)| !path.is_dir()) {
            return Some(format!("--{option} {}: there is no such folder", path.display()));
        }
        if no_symbols && (self.debuginfod || !folders.is_empty()) {
            let option = folders.first().map_or("debuginfod", |(option, _)| option);
            return Some(format!("--{option} changes nothing with --no-symbols: no names are looked up"));
        }
        let has_servers = std::env::var_os("DEBUGINFOD_URLS").is_some_and(|urls| !urls.is_empty());
        (self.debuginfod && !has_servers).then(|| {
            "--debuginfod needs the address of a server in the environment variable DEBUGINFOD_URLS".to_owned()
        })
    }

    /// Returns the places on this machine and the servers. Must not be used while the program runs, because a network
    /// can be slow.
    pub fn search_everywhere(&self) -> symbols::Search {
        let servers = self.debuginfod.then(symbols::Debuginfod::from_environment).flatten();
        symbols::Search { debuginfod: servers.map(Arc::new), ..self.search() }
    }

    pub const fn asks_servers(&self) -> bool {
        self.debuginfod
    }

    /// Returns the places on this machine.
    pub fn search(&self) -> symbols::Search {
        let whole = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        symbols::Search {
            debug_paths: self.debug_paths.iter().map(whole).collect(),
            sysroot: self.sysroot.as_ref().map(whole),
            ..symbols::Search::default()
        }
    }
}
