//! The memory of a process's cgroup, of version 1 or 2.
use std::fs;
use std::path::{Path, PathBuf};

/// Where the numbers of a cgroup are.
#[derive(Debug, PartialEq, Eq)]
pub enum Cgroup {
    One(PathBuf),
    Two(PathBuf),
}

impl Cgroup {
    /// The cgroup of a process that counts its memory.
    pub fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        Self::find(&text, Path::new("/sys/fs/cgroup"))
    }

    /// `text`: what `/proc/PID/cgroup` says. In a container the path in it may be that of the host, which is not there; then
    /// the container's own root is used.
    fn find(text: &str, root: &Path) -> Option<Self> {
        let path_of = |is_it: &dyn Fn(&str) -> bool| {
            text.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (controllers, path) = (parts.next()?, parts.next()?);
                is_it(controllers).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let one = path_of(&|controllers| controllers.split(',').any(|name| name == "memory"));
        let existing = |folder: PathBuf, path: String, file: &str| {
            [folder.join(path), folder].into_iter().find(|folder| folder.join(file).exists())
        };
        if let Some(folder) = one.and_then(|path| existing(root.join("memory"), path, "memory.usage_in_bytes")) {
            return Some(Cgroup::One(folder));
        }
        let two = path_of(&str::is_empty)?;
        existing(root.to_owned(), two, "memory.current").map(Cgroup::Two)
    }

    /// The bytes in use, and the limit. A limit of a cgroup around it holds too, with all that is used in there. The one that is
    /// nearest to its limit counts. `None` without any limit.
    pub fn memory(&self) -> Option<(u64, u64)> {
        let (folder, used, limit) = match self {
            Cgroup::One(folder) => (folder, "memory.usage_in_bytes", "memory.limit_in_bytes"),
            // Without a limit it says `max`, which is no number.
            Cgroup::Two(folder) => (folder, "memory.current", "memory.max"),
        };
        let number = |folder: &Path, file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
        let numbers = folder.ancestors().filter_map(|folder| Some((number(folder, used)?, number(folder, limit)?)));
        // Version 1 has a number near 2^63 if there is no limit.
        let limited = numbers.filter(|(_, limit)| *limit < 1 << 60);
        let share = |(used, limit): &(u64, u64)| *used as f64 / *limit as f64;
        limited.max_by(|one, other| share(one).total_cmp(&share(other)))
    }

    /// The share of the last ten seconds in which some task waited for memory, in percent. Version 1 knows it for the whole
    /// machine only.
    pub fn pressure(&self) -> Option<f64> {
        let file = match self {
            Cgroup::One(_) => PathBuf::from("/proc/pressure/memory"),
            Cgroup::Two(folder) => folder.join("memory.pressure"),
        };
        some_average(&fs::read_to_string(file).ok()?)
    }
}

/// The average over ten seconds in the line of `some`.
fn some_average(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split(' ').find_map(|word| word.strip_prefix("avg10=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("heaptrack-cgroup.{}.{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn put(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn version_1_has_a_folder_for_memory() {
        let root = Folder::new("one");
        root.put("memory/jobs/7/memory.usage_in_bytes", "950\n");
        root.put("memory/jobs/7/memory.limit_in_bytes", "1000\n");
        let text = "5:cpu,cpuacct:/x\n4:memory:/jobs/7\n0::/init\n";
        let cgroup = Cgroup::find(text, &root.0).unwrap();
        assert_eq!((&cgroup, cgroup.memory()), (&Cgroup::One(root.0.join("memory/jobs/7")), Some((950, 1000))));
        root.put("memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(cgroup.memory(), None);
    }

    #[test]
    fn version_2_has_one_folder_and_the_root_of_a_container_serves_too() {
        let root = Folder::new("two");
        root.put("memory.current", "10\n");
        root.put("memory.max", "max\n");
        let cgroup = Cgroup::find("0::/kubepods/pod7\n", &root.0).unwrap();
        assert_eq!((&cgroup, cgroup.memory()), (&Cgroup::Two(root.0.clone()), None));
        root.put("memory.max", "40\n");
        assert_eq!(cgroup.memory(), Some((10, 40)));
        root.put("memory.pressure", "some avg10=2.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=9.00 avg60=0.00\n");
        assert_eq!(cgroup.pressure(), Some(2.5));
    }

    #[test]
    fn a_limit_around_the_cgroup_holds_too() {
        let root = Folder::new("around");
        for (folder, used, limit) in
            [(".", "900", "max"), ("pod", "800", "1000"), ("pod/shop", "300", "400"), ("pod/shop/x", "30", "max")]
        {
            root.put(&format!("{folder}/memory.current"), used);
            root.put(&format!("{folder}/memory.max"), limit);
        }
        let of = |path: &str| Cgroup::find(&format!("0::/{path}\n"), &root.0).unwrap();
        assert_eq!(of("").memory(), None);
        assert_eq!(of("pod/shop/x").memory(), Some((800, 1000)));
        root.put("pod/shop/memory.current", "390");
        assert_eq!(of("pod/shop/x").memory(), Some((390, 400)));
    }

    #[test]
    fn without_a_cgroup_there_are_no_numbers() {
        let root = Folder::new("none");
        assert_eq!(Cgroup::find("0::/x\n", &root.0), None);
        assert_eq!(some_average("full avg10=1.00\n"), None);
    }
}
