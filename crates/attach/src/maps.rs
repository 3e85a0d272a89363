//! The mappings of a process, from /proc/PID/maps.
use std::path::Path;
use std::{fs, io};

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub write: bool,
    pub execute: bool,
    pub read: bool,
    pub offset: u64,
    pub device: String,
    pub inode: u64,
    /// A path, a name like `[heap]`, or empty.
    pub name: String,
}

impl Mapping {
    pub const fn holds(&self, address: u64) -> bool {
        address >= self.start && address < self.end
    }

    pub const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Returns true for private memory without a file and without a name.
    pub const fn is_anonymous(&self) -> bool {
        self.inode == 0 && self.name.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps(pub Vec<Mapping>);

impl Maps {
    pub fn of(folder: &Path) -> io::Result<Maps> {
        // Paths need not be UTF-8.
        let text = fs::read(folder.join("maps"))?;
        Ok(Maps(String::from_utf8_lossy(&text).lines().filter_map(parse).collect()))
    }

    pub fn at(&self, address: u64) -> Option<&Mapping> {
        let after = self.0.partition_point(|mapping| mapping.end <= address);
        self.0.get(after).filter(|mapping| mapping.holds(address))
    }
}

fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let flags = words.next()?.as_bytes();
    let offset = words.next()?;
    let device = words.next()?.to_owned();
    let inode = words.next()?.parse().ok()?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        read: flags.first() == Some(&b'r'),
        write: flags.get(1) == Some(&b'w'),
        execute: flags.get(2) == Some(&b'x'),
        offset: hex(offset)?,
        device,
        inode,
        name: words.next().unwrap_or_default().trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let line = "7f35e2e01000-7f35e2e27000 r-xp 00001000 fe:01 918273                     /usr/lib/a b.so (deleted)";
        let mapping = parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f35_e2e0_1000, 0x7f35_e2e2_7000, 0x1000));
        assert!(mapping.read && mapping.execute && !mapping.write);
        assert_eq!((mapping.inode, mapping.name.as_str()), (918_273, "/usr/lib/a b.so (deleted)"));
        let anonymous = parse("7ffd0000-7ffe0000 rw-p 00000000 00:00 0 ").unwrap();
        assert!(anonymous.is_anonymous() && anonymous.write);
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn an_address_is_found() {
        let maps = Maps::of(Path::new("/proc/self")).unwrap();
        let here = an_address_is_found as fn() as usize as u64;
        assert!(maps.at(here).unwrap().execute);
        assert_eq!(maps.at(1), None);
    }
}
