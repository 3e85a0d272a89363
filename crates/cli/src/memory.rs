//! Tells the user before a trace is read if that needs more memory than there is.
//!
//! Receives: a trace and what will be read of it. Returns: an error if the memory cannot suffice. Must hold: a trace
//! that may fit is read; a small one is read without a question.
use crate::status::Bytes;
use anyhow::anyhow;
use format::Domain;
use heaptrack_trace::{Extent, Reading};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::{Path, PathBuf};

/// Less than this is always tried, and not mentioned.
const SMALL: u64 = 128 << 20;
/// On a terminal, the progress bar mentions a need of at least this much.
const LARGE: u64 = 1 << 30;
/// Traces that are smaller than this are read within milliseconds.
const WORTH_A_THREAD: u64 = 4 << 20;
/// Of a limited address space, threads reserve this much for their stacks and heaps without using it.
const RESERVED: u64 = 192 << 20;

/// What is known of the memory before traces are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The memory that reading needs at most, if it is large.
    pub large: Option<u64>,
    /// Whether all traces should be read at the same time: they fit into the memory together, and are not so small that
    /// it makes no difference.
    pub is_parallel: bool,
}

/// Refuses traces that cannot fit into the memory one after the other. If one is only likely not to fit, says so on
/// stderr.
pub fn check(paths: &[&Path], domain: Domain, reading: Reading) -> anyhow::Result<Plan> {
    let (mut largest, mut sum, mut file_bytes) = (0u64, 0u64, 0u64);
    for path in paths {
        let Some(extent) = Extent::of(path, domain) else { return Ok(Plan::default()) };
        check_extent(path, &extent, reading)?;
        largest = largest.max(extent.most_bytes(reading));
        sum = sum.saturating_add(extent.most_bytes(reading));
        file_bytes = file_bytes.saturating_add(fs::metadata(path).map_or(0, |metadata| metadata.len()));
    }
    let is_parallel = paths.len() > 1 && file_bytes >= WORTH_A_THREAD && sum <= available();
    let need = if is_parallel { sum } else { largest };
    Ok(Plan { large: (need >= LARGE).then_some(need), is_parallel })
}

/// As `check`, for `heaptrack trim` up to this time. `has_start`: the new trace does not begin with the first event.
pub fn check_trim(path: &Path, has_start: bool, to_ns: u64) -> anyhow::Result<()> {
    let Some(extent) = Extent::of(path, Domain::Malloc) else { return Ok(()) };
    check_extent(path, &extent.until(to_ns), if has_start { Reading::Trim } else { Reading::Range })
}

fn check_extent(path: &Path, extent: &Extent, reading: Reading) -> anyhow::Result<()> {
    if extent.most_bytes(reading) < SMALL {
        return Ok(());
    }
    let available = available();
    let sentence = || sentence(path, extent, reading, available);
    match judge(extent, reading, available) {
        Judgement::Fits => Ok(()),
        Judgement::Unlikely => {
            crate::say(format_args!("heaptrack: {}", sentence()));
            Ok(())
        }
        Judgement::Impossible => Err(anyhow!(sentence())),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Fits,
    Unlikely,
    Impossible,
}

fn judge(extent: &Extent, reading: Reading, available: u64) -> Judgement {
    // The figures are upper bounds: on average, a live block takes about four fifths of its bound.
    let surely = extent.least_bytes(reading) / 4 * 3;
    match () {
        () if extent.most_bytes(reading) <= available => Judgement::Fits,
        () if surely <= available => Judgement::Unlikely,
        () => Judgement::Impossible,
    }
}

/// Says how much memory the trace needs, and what needs less.
fn sentence(path: &Path, extent: &Extent, reading: Reading, available: u64) -> String {
    let name = path.display();
    let most = Bytes(extent.most_bytes(reading));
    let blocks = million(extent.live_at_most);
    let whole = extent.most_bytes(Reading::Session);
    let advice = if reading != Reading::Session && whole <= available {
        format!("a report of the whole session without leaks (heaptrack print {name}) needs {}", Bytes(whole))
    } else if let Some(moment) = extent.latest_within(available / 8 * 7) {
        let seconds = (moment.time_ns / 100_000_000) as f64 / 10.0;
        format!("heaptrack trim --to {seconds}s -o first.htz {name} makes a trace of the first {seconds} s, which fits")
    } else {
        "read it where more memory is free".to_owned()
    };
    let had = Bytes(available);
    format!(
        "{name} needs up to {most} of memory, because up to {blocks} blocks were live at once, and {had} are available: {advice}"
    )
}

/// "100 million", "1.5 million".
fn million(count: u64) -> String {
    let millions = count as f64 / 1e6;
    if millions >= 10.0 { format!("{millions:.0} million") } else { format!("{millions:.1} million") }
}

/// The memory that this process can still get, in bytes: what the system, each of the process's control groups, and its
/// own address space leave.
fn available() -> u64 {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_system(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        of_groups(Path::new("/"), &groups, &mounts)
    });
    let own = getrlimit(Resource::As).current.map(|limit| limit.saturating_sub(mapped() + RESERVED));
    [system, groups, own].into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// The size of this process's address space.
fn mapped() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages: Option<u64> = pages.and_then(|text| text.split(' ').next()?.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// From the text of /proc/meminfo. Free swap space counts, because reading goes on there, although slowly.
fn of_system(text: &str) -> Option<u64> {
    let kilobytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().ok()
    };
    Some((kilobytes("MemAvailable")? + kilobytes("SwapFree").unwrap_or(0)).saturating_mul(1024))
}

/// The least that a control group or one of its ancestors leaves. `root`: where `/` is, for tests. `groups`: the text of
/// /proc/self/cgroup. `mounts`: the text of /proc/self/mountinfo.
fn of_groups(root: &Path, groups: &str, mounts: &str) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let version = match (number, controllers) {
            ("0", "") => &TWO,
            (_, list) if list.split(',').any(|name| name == "memory") => &ONE,
            _ => continue,
        };
        for folder in folders(root, group, mounts, version) {
            least = [least, version.left(&folder)].into_iter().flatten().min();
        }
    }
    least
}

/// How a version of control groups names its files.
struct Version {
    kind: &'static str,
    controller: Option<&'static str>,
    limit: &'static str,
    used: &'static str,
    /// Parts of `memory.stat` that are only a cache of files, which the kernel drops when memory is needed.
    cache: [&'static str; 2],
}

const ONE: Version = Version {
    kind: "cgroup",
    controller: Some("memory"),
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};

const TWO: Version = Version {
    kind: "cgroup2",
    controller: None,
    limit: "memory.max",
    used: "memory.current",
    cache: ["inactive_file", "active_file"],
};

impl Version {
    /// `None` if the group has no limit.
    fn left(&self, folder: &Path) -> Option<u64> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let limit = number(self.limit)?;
        let used = number(self.used).unwrap_or(0);
        let stat = read("memory.stat").unwrap_or_default();
        let cached = stat.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| self.cache.contains(name));
        let cached: u64 = cached.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum();
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    }
}

/// The folder of a group and those of its ancestors, as far as this process sees them.
fn folders(root: &Path, group: &str, mounts: &str, version: &Version) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((mount, rest)) = line.split_once(" - ") else { continue };
        let mut rest = rest.split(' ');
        let (kind, options) = (rest.next(), rest.nth(1).unwrap_or_default());
        let has_controller = version.controller.is_none_or(|name| options.split(',').any(|option| option == name));
        if kind != Some(version.kind) || !has_controller {
            continue;
        }
        let mut fields = mount.split(' ').skip(3);
        let (Some(mounted), Some(at)) = (fields.next(), fields.next()) else { continue };
        let base = root.join(at.trim_start_matches('/'));
        // In a container, the mount may begin at the container's own group.
        let inner = group.strip_prefix(mounted.trim_end_matches('/')).unwrap_or_default().trim_start_matches('/');
        let own = base.join(inner);
        found.extend(own.ancestors().take_while(|folder| folder.starts_with(&base)).map(Path::to_owned));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn extent(live: u64) -> Extent {
        let allocations = 5 * live;
        Extent { allocations, live_at_least: live, live_at_most: live + live / 50, ..Extent::default() }
    }

    #[test]
    fn swap_counts_as_memory() {
        let text =
            "MemTotal:       24683520 kB\nMemFree:        1 kB\nMemAvailable:   1000 kB\nSwapFree:       24 kB\n";
        assert_eq!(of_system(text), Some(1024 * 1024));
        assert_eq!(of_system("MemAvailable:   1000 kB\n"), Some(1000 * 1024));
        assert_eq!(of_system("MemTotal: 5 kB\n"), None);
    }

    /// A folder with the files of control groups.
    struct Groups(PathBuf);

    impl Groups {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("heaptrack-groups-{name}.{}", std::process::id()));
            for (file, text) in files {
                let path = root.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Groups(root)
        }
    }

    impl Drop for Groups {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_tightest_group_of_version_2_decides() {
        let groups = Groups::new(
            "two",
            &[
                ("sys/fs/cgroup/a/memory.max", "5000\n"),
                ("sys/fs/cgroup/a/memory.current", "4000\n"),
                ("sys/fs/cgroup/a/memory.stat", "anon 900\ninactive_file 2000\nactive_file 100\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/b/memory.current", "10\n"),
            ],
        );
        let mounts = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(of_groups(&groups.0, "0::/a/b\n", mounts), Some(5000 - (4000 - 2100)));
        assert_eq!(of_groups(&groups.0, "0::/other\n", mounts), None, "a group without a limit");
    }

    #[test]
    fn version_1_is_read_too_also_in_a_container() {
        let files = [
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000\n"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1500\n"),
            ("sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 200\ninactive_file 7\n"),
        ];
        let groups = Groups::new("one", &files);
        let lines = "5:cpu,cpuacct:/\n4:memory:/job\n0::/\n";
        let mount = |mounted: &str| {
            format!("33 30 0:29 {mounted} /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n")
        };
        assert_eq!(of_groups(&groups.0, lines, &mount("/")), Some(700));
        let inside = "4:memory:/docker/1234\n";
        assert_eq!(of_groups(&groups.0, inside, &mount("/docker/1234")), Some(8000), "the mount is the own group");
    }

    #[test]
    fn only_what_cannot_fit_is_refused() {
        let extent = extent(100_000_000);
        let most = extent.most_bytes(Reading::Session);
        assert_eq!(judge(&extent, Reading::Session, most), Judgement::Fits);
        assert_eq!(judge(&extent, Reading::Session, most - 1), Judgement::Unlikely);
        assert_eq!(judge(&extent, Reading::Session, most / 2), Judgement::Impossible);
    }

    #[test]
    fn the_sentence_has_the_figures_and_what_helps() {
        let mut extent = extent(100_000_000);
        let path = Path::new("x.htz");
        let range = sentence(path, &extent, Reading::Range, GB);
        assert!(
            range.contains("because up to 102 million blocks were live at once, and 1.0 GB are available"),
            "{range}"
        );
        assert!(
            range.contains(": a report of the whole session without leaks (heaptrack print x.htz) needs "),
            "{range}"
        );
        let session = sentence(path, &extent, Reading::Session, GB / 2);
        assert!(session.ends_with("and 500.0 MB are available: read it where more memory is free"), "{session}");
        let early = heaptrack_trace::ExtentMoment { time_ns: 12_345_678_901, allocations: 9, live: 9, live_at_most: 9 };
        extent.moments.push(early);
        let session = sentence(path, &extent, Reading::Session, GB / 2);
        assert!(
            session.contains(": heaptrack trim --to 12.3s -o first.htz x.htz makes a trace of the first 12.3 s"),
            "{session}"
        );
    }
}
