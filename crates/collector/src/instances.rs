//! Translates the modules of several processes to those of the trace.
//!
//! Receives: frames with the module numbers of a process. Returns: frames with the module numbers of the trace. Must hold: a file has one
//! number in the trace, whichever processes mapped it; code of no module is told apart by process.
use format::Frame;

/// Numbers of modules below this are left to code of no module, and to frames that no module is known for.
const FIRST: u16 = 1;
/// The highest number. The one above means a marker.
const LAST: u16 = u16::MAX - 1;

#[derive(Debug, Default)]
pub struct Instances {
    /// By process, then by the number in that process.
    tables: Vec<Vec<u16>>,
    given: u16,
    code_modules: Vec<(u16, u16)>,
    frames: Vec<u64>,
}

impl Instances {
    /// Gives a number to a new module of the trace. Returns `None` if there are too many.
    pub fn new_instance(&mut self) -> Option<u16> {
        let next = self.given.checked_add(FIRST).filter(|next| *next <= LAST)?;
        self.given = next;
        Some(next)
    }

    /// The module that a process calls `own` is the trace's module `instance`.
    pub fn set(&mut self, process: u16, own: u16, instance: u16) {
        let process = process as usize;
        if self.tables.len() <= process {
            self.tables.resize_with(process + 1, Vec::new);
        }
        let Some(table) = self.tables.get_mut(process) else { return };
        if table.len() <= own as usize {
            table.resize(own as usize + 1, 0);
        }
        if let Some(place) = table.get_mut(own as usize) {
            *place = instance;
        }
    }

    /// The number of a process is given to another one.
    pub fn forget(&mut self, process: u16) {
        if let Some(table) = self.tables.get_mut(process as usize) {
            *table = Vec::new();
        }
    }

    fn get(&self, process: u16, own: u16) -> u16 {
        self.tables.get(process as usize).and_then(|table| table.get(own as usize)).copied().unwrap_or(0)
    }

    fn translate(&mut self, process: u16, frame: u64) -> u64 {
        let frame = Frame(frame);
        if frame.is_marker() {
            return frame.0;
        }
        let own = frame.instance();
        let known = self.get(process, own);
        if known != 0 || own != 0 {
            return frame.in_instance(known).0;
        }
        let Some(instance) = self.new_instance() else { return frame.0 };
        self.set(process, 0, instance);
        self.code_modules.push((instance, process));
        frame.in_instance(instance).0
    }

    /// Translates the frames of a process.
    pub fn all(&mut self, process: u16, frames: &[u64]) -> &[u64] {
        let mut translated = std::mem::take(&mut self.frames);
        translated.clear();
        translated.extend(frames.iter().map(|frame| self.translate(process, *frame)));
        self.frames = translated;
        &self.frames
    }

    pub fn take_code_modules(&mut self, modules: &mut Vec<(u16, u16)>) {
        modules.append(&mut self.code_modules);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_number_and_code_of_no_module_one_for_each_process() {
        let mut instances = Instances::default();
        let libc = instances.new_instance().unwrap();
        instances.set(1, 7, libc);
        instances.set(2, 3, libc);
        let frame = |instance, offset| Frame::new(instance, offset, true).0;
        let marker = frame(u16::MAX, 1);
        assert_eq!(
            instances.all(1, &[frame(7, 0x10), frame(0, 0x20), marker]),
            [frame(libc, 0x10), frame(2, 0x20), marker]
        );
        assert_eq!(instances.all(2, &[frame(3, 0x10), frame(0, 0x20)]), [frame(libc, 0x10), frame(3, 0x20)]);
        assert_eq!(instances.all(2, &[frame(9, 0x30), frame(0, 0x21)]), [frame(0, 0x30), frame(3, 0x21)]);
        let mut new = Vec::new();
        instances.take_code_modules(&mut new);
        assert_eq!(new, [(2, 1), (3, 2)]);
        instances.forget(2);
        assert_eq!(instances.all(2, &[frame(3, 0x10)]), [frame(0, 0x10)]);
    }
}
