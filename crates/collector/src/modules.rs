//! The target's module table, read as it grows.
//!
//! Receives: the shared memory. Returns: modules that were loaded or unloaded since the last call. Must hold: if
//! `loaded` is called after the rings were copied and before the copied events are written, a module is in the trace
//! before the first frame in it.
use crate::clock::Timeline;
use crate::proc_files::Process;
use channel::{BUILD_ID_MAX, Region};
use format::Module;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

#[derive(Debug, Default)]
pub struct Modules {
    seen: Vec<Module>,
    /// The file that we launched: the main program of the first image. Empty if any program may join.
    launched: String,
}

impl Modules {
    pub const fn new(launched: String) -> Self {
        Modules { seen: Vec::new(), launched }
    }

    /// Returns all modules that were ever loaded, also those that are unloaded by now.
    pub fn seen(&self) -> &[Module] {
        &self.seen
    }

    /// Returns the modules that were loaded since the last call.
    pub fn loaded(&mut self, region: &Region, timeline: &Timeline, process: &Process) -> &[Module] {
        let count = region.header().module_count.load(Ordering::Acquire).min(region.geometry().modules);
        let before = self.seen.len();
        for index in before..count as usize {
            if let Some(module) = self.read(region, index, timeline, process) {
                self.seen.push(module);
            }
        }
        self.seen.get(before..).unwrap_or_default()
    }

    /// Returns the modules that were unloaded since the last call. It walks over all modules, so it is not called in
    /// every round.
    pub fn unloaded(&mut self, region: &Region, timeline: &Timeline) -> Vec<Module> {
        let mut gone = Vec::new();
        for (module, raw) in self.seen.iter_mut().zip(region.modules()) {
            let stamp = raw.unloaded.load(Ordering::Acquire);
            if module.unloaded_ns.is_none() && stamp != 0 {
                module.unloaded_ns = Some(timeline.ns(stamp));
                gone.push(module.clone());
            }
        }
        gone
    }

    fn read(&self, region: &Region, index: usize, timeline: &Timeline, process: &Process) -> Option<Module> {
        let raw = region.modules().get(index)?;
        let mut build_id: Vec<u8> =
            raw.build_id.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        build_id.truncate((raw.build_id_len.load(Ordering::Relaxed) as usize).min(BUILD_ID_MAX));
        let path = text(region, raw.name_at.load(Ordering::Relaxed), raw.name_len.load(Ordering::Relaxed));
        let image = raw.image.load(Ordering::Relaxed);
        let mut path = path.filter(|path| !path.is_empty()).unwrap_or_else(|| self.main_program(image, process));
        let start = raw.start.load(Ordering::Relaxed);
        // A relative path such as `./libx.so` is useless to a reader of the trace. A launched target resolves it
        // itself. A target that was attached to and a forked child learn of the module too late to do so.
        if path.contains('/') && !path.starts_with('/') {
            let main = || Some(self.main_program(image, process)).filter(|main| is_same_file(main, &path));
            path = process.mapped_file(start).or_else(main).unwrap_or(path);
        }
        if path.contains("/./") {
            path = Path::new(&path).components().collect::<PathBuf>().to_string_lossy().into_owned();
        }
        Some(Module {
            instance: u16::try_from(index + 1).ok()?,
            image,
            start,
            end: raw.end.load(Ordering::Relaxed),
            bias: raw.bias.load(Ordering::Relaxed),
            path,
            build_id,
            loaded_ns: timeline.ns(raw.loaded.load(Ordering::Relaxed)),
            unloaded_ns: None,
        })
    }
}

impl Modules {
    /// Returns the path of an image's main program. /proc names only the program that runs now. The first image may be
    /// replaced already, so the path that was launched is used for it.
    fn main_program(&self, image: u32, process: &Process) -> String {
        match process.exe() {
            Some(now) if image > 1 || self.launched.is_empty() => now,
            _ => self.launched.clone(),
        }
    }
}

/// Returns true if `main` is an absolute path of a file that has the name of the file at `relative`. musl names the main
/// program as the user typed it, and a short program is gone before its mappings can be read.
fn is_same_file(main: &str, relative: &str) -> bool {
    main.starts_with('/') && Path::new(main).file_name() == Path::new(relative).file_name()
}

/// Returns a text of the names area, or `None` if the target's numbers point outside of it.
pub fn text(region: &Region, at: u32, length: u32) -> Option<String> {
    let end = (at as usize).checked_add(length as usize)?;
    let bytes: Vec<u8> = region.names().get(at as usize..end)?.iter().map(|b| b.load(Ordering::Relaxed)).collect();
    Some(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use crate::mapping::Mapping;
    use crate::mapping::tests::tight;
    use std::time::Instant;

    /// A program that has ended cannot be asked for its mappings.
    #[test]
    fn the_main_program_has_its_whole_path_after_its_end() {
        let mapping = Mapping::create(&tight()).unwrap();
        let region = mapping.region();
        let timeline = Timeline::new(channel::Clock::Ticks, Instant::now(), region.header());
        let name = b"./counting./other";
        name.iter().zip(region.names()).for_each(|(byte, place)| place.store(*byte, Ordering::Relaxed));
        for (index, (at, length)) in [(0, 10), (10, 7)].into_iter().enumerate() {
            region.modules()[index].name_at.store(at, Ordering::Relaxed);
            region.modules()[index].name_len.store(length, Ordering::Relaxed);
        }
        region.header().module_count.store(2, Ordering::Release);
        let mut modules = Modules::new("/app/counting".into());
        let paths: Vec<&str> =
            modules.loaded(&region, &timeline, &Process::new(0)).iter().map(|module| module.path.as_str()).collect();
        assert_eq!(paths, ["/app/counting", "./other"]);
    }
}
