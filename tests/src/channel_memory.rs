//! The shared memory of a recording, which tests change from outside.
use channel::{Geometry, Header, SlotHeader};
use std::fs::{File, OpenOptions};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

pub struct ChannelMemory(File);

impl ChannelMemory {
    /// The shared memory of a running `heaptrack`.
    pub fn of(recorder: u32) -> Option<Self> {
        let descriptors = std::fs::read_dir(format!("/proc/{recorder}/fd")).ok()?.flatten();
        let is_channel = |path: &std::path::Path| {
            std::fs::read_link(path).is_ok_and(|name| name.to_string_lossy().starts_with("/memfd:heaptrack "))
        };
        let path = descriptors.map(|entry| entry.path()).find(|path| is_channel(path))?;
        OpenOptions::new().read(true).write(true).open(path).ok().map(ChannelMemory)
    }

    /// Stores the number of a failed check, as a capture library that checks itself would.
    pub fn fail_check(&self, number: u32) {
        self.0.write_all_at(&number.to_ne_bytes(), offset_of!(Header, failed_check) as u64).unwrap();
    }

    /// Adds one to the head of the ring of a slot.
    pub fn move_head(&self, slot: usize) {
        self.add_one(slot, offset_of!(SlotHeader, head));
    }

    /// Counts one more begun event in a slot than its thread has written.
    pub fn count_event(&self, slot: usize) {
        self.add_one(slot, offset_of!(SlotHeader, begun));
    }

    fn add_one(&self, slot: usize, field: usize) {
        let mut geometry = [0; size_of::<Geometry>()];
        self.0.read_exact_at(&mut geometry, offset_of!(Header, geometry) as u64).unwrap();
        let at = (Geometry::from_bytes(&geometry).slot_headers_at() + slot * size_of::<SlotHeader>() + field) as u64;
        let mut word = [0; 8];
        self.0.read_exact_at(&mut word, at).unwrap();
        self.0.write_all_at(&(u64::from_ne_bytes(word) + 1).to_ne_bytes(), at).unwrap();
    }
}
