//! Sentences about modules without names, and the command that installs their debug information.
//!
//! Receives: the definitions of a trace. Returns: at most two sentences. The distribution is that of the machine on which
//! the trace is viewed (`/etc/os-release`), so a command is given only if the trace was recorded on a machine of that name.
use analysis::{CodeClass, CodeClasses, Definitions, Level};
use format::{Frame, Module};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

/// A module is worth a sentence if this share of its frames has no name,
const PERCENT_OF_MODULE: usize = 50;
/// and if these frames are this share of all frames of the trace.
const PERCENT_OF_ALL: usize = 10;
const SENTENCES: usize = 2;

/// One sentence for each module that most misses names.
pub(crate) fn missing_names(definitions: &Definitions, file: &Path) -> Vec<String> {
    let frames = definitions.names.frames_by_module();
    let all: usize = frames.values().map(|(_, all)| all).sum();
    let classes = CodeClasses::new(&definitions.session.exe);
    let mut found: Vec<(usize, usize, &Module)> = frames
        .iter()
        .filter(|(_, (nameless, of_module))| {
            nameless * 100 >= of_module * PERCENT_OF_MODULE && nameless * 100 >= all * PERCENT_OF_ALL
        })
        .filter_map(|(instance, (nameless, of_module))| {
            Some((*nameless, *of_module, definitions.modules.get(instance)?))
        })
        .filter(|(_, _, module)| !is_system(&classes, &module.path))
        .collect();
    found.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.2.path.cmp(&other.2.path)));
    let here = Machine::here(&definitions.session.hostname);
    let sentence = |(nameless, of_module, module): &(usize, usize, &Module)| {
        let base = module.path.rsplit('/').next().unwrap_or(&module.path);
        let remedy = here.remedy(&module.path, &module.build_id, file);
        format!("{base} has no names for {nameless} of its {of_module} frames. {remedy}")
    };
    found.iter().take(SENTENCES).map(sentence).collect()
}

fn is_system(classes: &CodeClasses, path: &str) -> bool {
    let level = Level {
        frame: Frame::new(1, 0, false),
        module: Some(path),
        function: None,
        short: None,
        raw: None,
        file: None,
        line: None,
        inlined: false,
    };
    matches!(classes.of(&level), CodeClass::Libc | CodeClass::Kernel)
}

/// The machine on which the trace is viewed.
struct Machine {
    /// `ID` and `ID_LIKE` of `/etc/os-release`. Empty if the trace is of another machine.
    ids: Vec<String>,
}

impl Machine {
    fn here(recorded_on: &str) -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let is_same = read("/proc/sys/kernel/hostname").trim() == recorded_on && !recorded_on.is_empty();
        Machine { ids: if is_same { ids(&read("/etc/os-release")) } else { Vec::new() } }
    }

    fn is(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known == id)
    }

    /// A sentence that says how names can be added.
    fn remedy(&self, module: &str, build_id: &[u8], file: &Path) -> String {
        let file = file.display();
        let then = format!("then `heaptrack symbolize {file}`");
        let fetched =
            |server: &str| format!("`DEBUGINFOD_URLS=https://{server} heaptrack symbolize --debuginfod {file}`");
        let is_packaged = ["/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/"].iter().any(|part| module.starts_with(part));
        if !is_packaged || module.starts_with("/usr/local/") {
            return format!("Build it with -g, or keep its symbols; {then}.");
        }
        let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        if self.is("debian") {
            let server = if self.is("ubuntu") { "debuginfod.ubuntu.com" } else { "debuginfod.debian.net" };
            return match package(module) {
                Some(package) => format!("`sudo apt install {package}-dbgsym`, {then}."),
                None => format!("{} adds them.", fetched(server)),
            };
        }
        if self.is("fedora") || self.is("rhel") {
            return format!("`sudo dnf debuginfo-install $(rpm -qf {module})`, {then}.");
        }
        if (self.is("suse") || self.is("opensuse")) && !hex.is_empty() {
            return format!("`sudo zypper install -C 'debuginfo(build-id)={hex}'`, {then}.");
        }
        if self.is("alpine") {
            return format!("`apk info --who-owns {module}` names its package; install PACKAGE-dbg, {then}.");
        }
        if self.is("arch") {
            return format!("{} adds them.", fetched("debuginfod.archlinux.org"));
        }
        if self.ids.is_empty() {
            return format!("Install its debug package on the machine where it was recorded, {then} there.");
        }
        format!("{} adds them, if its distribution has a server.", fetched("debuginfod.elfutils.org"))
    }
}

/// The identifiers of a distribution and of those that it is like.
fn ids(os_release: &str) -> Vec<String> {
    let values = os_release.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        matches!(key, "ID" | "ID_LIKE").then(|| value.trim_matches(['"', '\'']))
    });
    values.flat_map(|value| value.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The Debian package that installed a file. The lists of all packages are read once for each file.
fn package(module: &str) -> Option<String> {
    static KNOWN: LazyLock<Mutex<HashMap<String, Option<String>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(module) {
        return found.clone();
    }
    let found = package_in(Path::new("/var/lib/dpkg/info"), module);
    known.insert(module.to_owned(), found.clone());
    found
}

fn package_in(folder: &Path, module: &str) -> Option<String> {
    // /lib is a link to /usr/lib, and packages list either name. The file may be named by a link, too.
    let real = std::fs::canonicalize(module).ok();
    let real = real.as_ref().and_then(|path| path.to_str()).unwrap_or(module);
    let names = [module, real, real.strip_prefix("/usr").unwrap_or(real)];
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "list") {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        if text.lines().any(|line| names.contains(&line)) {
            let stem = path.file_stem()?.to_str()?;
            return Some(stem.split(':').next().unwrap_or(stem).to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distribution_has_its_command() {
        let file = Path::new("a.htz");
        for (os_release, expected) in [
            (
                "ID=fedora\n",
                "`sudo dnf debuginfo-install $(rpm -qf /usr/bin/nowhere)`, then `heaptrack symbolize a.htz`.",
            ),
            (
                "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                "`sudo dnf debuginfo-install $(rpm -qf /usr/bin/nowhere)`, then `heaptrack symbolize a.htz`.",
            ),
            (
                "ID=opensuse-tumbleweed\nID_LIKE=\"opensuse suse\"\n",
                "`sudo zypper install -C 'debuginfo(build-id)=01ab'`, then `heaptrack symbolize a.htz`.",
            ),
            (
                "ID=arch\n",
                "`DEBUGINFOD_URLS=https://debuginfod.archlinux.org heaptrack symbolize --debuginfod a.htz` adds them.",
            ),
            (
                "ID=alpine\n",
                "`apk info --who-owns /usr/bin/nowhere` names its package; install PACKAGE-dbg, then `heaptrack symbolize a.htz`.",
            ),
            (
                "ID=debian\n",
                "`DEBUGINFOD_URLS=https://debuginfod.debian.net heaptrack symbolize --debuginfod a.htz` adds them.",
            ),
            (
                "ID=ubuntu\nID_LIKE=debian\n",
                "`DEBUGINFOD_URLS=https://debuginfod.ubuntu.com heaptrack symbolize --debuginfod a.htz` adds them.",
            ),
            (
                "",
                "Install its debug package on the machine where it was recorded, then `heaptrack symbolize a.htz` there.",
            ),
        ] {
            let machine = Machine { ids: ids(os_release) };
            assert_eq!(machine.remedy("/usr/bin/nowhere", &[1, 0xab], file), expected);
        }
        let own = Machine { ids: Vec::new() }.remedy("/home/me/app", &[], file);
        assert_eq!(own, "Build it with -g, or keep its symbols; then `heaptrack symbolize a.htz`.");
    }

    #[test]
    fn a_package_is_found_by_any_name_of_its_file() {
        let folder = std::env::temp_dir().join(format!("heaptrack-dpkg-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("nowhere:amd64.list"), "/.\n/usr/lib/libnowhere.so.1\n").unwrap();
        std::fs::write(folder.join("other.list"), "/.\n/usr/lib/libnowhere.so.1.2\n").unwrap();
        assert_eq!(package_in(&folder, "/usr/lib/libnowhere.so.1").as_deref(), Some("nowhere"));
        assert_eq!(package_in(&folder, "/usr/lib/libnowhere.so"), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
