//! The DWARF of one module: the main file, the parts that dwz moved to a shared file, and split parts, which are loaded
//! when needed.
//!
//! Receives: a file with debug information. Returns: the functions at an address, innermost first, each with its file
//! and line. Must hold: every chain of references has a limit. If a part of the file is damaged, only that part is
//! missing.
use crate::elf::Elf;
use crate::finder::Finder;
use crate::functions::{Offset, Value, read};
use crate::part::Part;
use crate::store::Store;
use crate::units::{Split, Unit, Units};
use gimli::{AttributeValue, Dwarf, DwarfPackage, SectionId};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(crate) struct DebugInfo<'f> {
    units: Units<'f>,
    /// The units that dwz moved to a shared file.
    shared: Option<Units<'f>>,
    package: Option<DwarfPackage<Part<'f>>>,
    store: &'f Store,
}

/// One function at an address.
pub(crate) struct Level {
    pub(crate) name: Option<String>,
    pub(crate) file: Option<Rc<str>>,
    pub(crate) line: Option<u32>,
}

/// An entry without a name may refer to another entry that has it, which may refer to another one. This is the limit.
const MOST_REFERENCES: usize = 16;

fn load<'f>(file: &Elf<'f>) -> Dwarf<Part<'f>> {
    let section = |id: SectionId| -> Result<_, std::convert::Infallible> { Ok(file.part(Some(id.name()))) };
    match Dwarf::load(section) {
        Ok(dwarf) => dwarf,
        Err(never) => match never {},
    }
}

fn load_split<'f>(file: &Elf<'f>) -> Dwarf<Part<'f>> {
    let section = |id: SectionId| -> Result<_, std::convert::Infallible> { Ok(file.part(id.dwo_name())) };
    match Dwarf::load(section) {
        Ok(dwarf) => dwarf,
        Err(never) => match never {},
    }
}

impl<'f> DebugInfo<'f> {
    /// `file` has the debug information of the module at the path `module`, and has itself the path `at`.
    pub(crate) fn new(store: &'f Store, file: &Elf<'f>, at: &Path, module: &Path, finder: &Finder<'_>) -> Self {
        let mut dwarf = load(file);
        let shared = alternate(store, file, at, finder);
        if let Some(shared) = &shared {
            // gimli needs the shared file for strings only. Its units are found through `DebugInfo::shared`.
            dwarf.set_sup(load(shared));
        }
        let shared = shared.map(|file| Units::new(store, load(&file)));
        DebugInfo { units: Units::new(store, dwarf), shared, package: package(store, at, module, finder), store }
    }

    /// Announces the addresses that will be asked for. `file` is the same as for `new`.
    pub(crate) fn expect(&self, file: &Elf<'f>, addresses: &[u64]) {
        if let Some(info) = file.section(SectionId::DebugInfo.name()).filter(|info| info.is_packed())
            && let Some(end) = self.units.end_of(addresses)
        {
            info.expect(end);
        }
    }

    /// Whether the header of the first unit can be read.
    pub(crate) fn is_readable(&self) -> bool {
        self.units.dwarf.units().next().is_ok_and(|header| header.is_some())
    }

    /// The functions at an address, innermost first. Empty if none is known.
    pub(crate) fn levels(&self, address: u64, finder: &Finder<'_>) -> Vec<Level> {
        self.units.find(address, |unit| self.levels_in(unit, address, finder)).unwrap_or_default()
    }

    fn levels_in(&self, unit: &Rc<Unit<'f>>, address: u64, finder: &Finder<'_>) -> Option<Vec<Level>> {
        let split = unit.split.get_or_init(|| self.split(unit, finder)).as_ref();
        let (units, body) = split.map_or((&self.units, unit), |split| (&split.units, &split.unit));
        // Lines are always in the main file.
        let (lines, main) = (unit.lines(&self.units), self.units.with(unit));
        let place = lines.and_then(|lines| lines.find(main, address));
        let function = body.functions(units).and_then(|functions| functions.find(address));
        if function.is_none() && place.is_none() {
            return None;
        }
        let (mut file, mut line) = place.unwrap_or_default();
        let mut levels = Vec::new();
        let Some(function) = function else { return Some(vec![Level { name: None, file, line }]) };
        for inlined in function.inlined(units.with(body), address).iter().rev() {
            let name = self.name(units, body, inlined.offset, MOST_REFERENCES);
            levels.push(Level { name, file, line });
            file = inlined.call_file.and_then(|number| lines?.file(main, number));
            line = inlined.call_line.filter(|line| *line != 0);
        }
        levels.push(Level { name: self.name(units, body, function.offset, MOST_REFERENCES), file, line });
        Some(levels)
    }

    /// The name of an entry: its linkage name, else its name in the source, else the name of the entry that it is a
    /// copy of.
    fn name(&self, units: &Units<'f>, unit: &Unit<'f>, offset: Offset, references: usize) -> Option<String> {
        let whole = units.with(unit);
        let mut entries = whole.entries_raw(Some(offset)).ok()?;
        let abbreviation = entries.read_abbreviation().ok()??;
        let (mut linkage, mut plain, mut origin) = (None, None, None);
        let taken = read(&mut entries, abbreviation, |name, value| match name {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => linkage = Some(value),
            gimli::DW_AT_name => plain = Some(value),
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => origin = Some(value),
            _ => {}
        });
        let text = |value: Value<'f>| whole.attr_string(value).ok()?.text();
        if let Some(name) = linkage.and_then(text).or_else(|| plain.and_then(text)) {
            return Some(name);
        }
        taken.ok()?;
        let references = references.checked_sub(1)?;
        match origin? {
            AttributeValue::UnitRef(offset) => self.name(units, unit, offset, references),
            AttributeValue::DebugInfoRef(offset) => {
                let (other, entry) = units.with_entry(offset.0)?;
                self.name(units, &other, entry, references)
            }
            AttributeValue::DebugInfoRefSup(offset) => {
                let shared = self.shared.as_ref()?;
                let (other, entry) = shared.with_entry(offset.0)?;
                self.name(shared, &other, entry, references)
            }
            _ => None,
        }
    }

    /// The split part of one compilation, from the package or from its own file. Its id must be the unit's.
    fn split(&self, unit: &Unit<'f>, finder: &Finder<'_>) -> Option<Split<'f>> {
        let id = unit.unit.dwo_id?;
        if let Some(package) = &self.package
            && let Ok(Some(found)) = package.find_cu(id, &self.units.dwarf)
        {
            return self.body_of(found, unit);
        }
        let name = self.units.with(unit).attr_string(unit.unit.dwo_name().ok()??).ok()?;
        let folder = unit.unit.comp_dir.map_or_else(PathBuf::new, as_path);
        finder.by_source(&folder.join(as_path(name))).into_iter().find_map(|(_, file)| {
            let mut dwarf = load_split(&Elf::open(self.store, file)?);
            dwarf.make_dwo(&self.units.dwarf);
            self.body_of(dwarf, unit)
        })
    }

    /// The only unit of a split part, if it belongs to `unit`.
    fn body_of(&self, dwarf: Dwarf<Part<'f>>, unit: &Unit<'f>) -> Option<Split<'f>> {
        let units = Units::new(self.store, dwarf);
        let mut body = units.parse(units.dwarf.units().next().ok()??)?;
        if body.dwo_id != unit.unit.dwo_id {
            return None;
        }
        body.copy_relocated_attributes(&unit.unit);
        Some(Split { unit: Rc::new(Unit::new(body)), units })
    }
}

fn as_path(bytes: Part<'_>) -> PathBuf {
    bytes.bytes().map_or_else(|_| PathBuf::new(), |bytes| PathBuf::from(OsStr::from_bytes(&bytes)))
}

/// The file that dwz moved shared parts to. The link contains its build-id.
fn alternate<'f>(store: &'f Store, file: &Elf<'f>, at: &Path, finder: &Finder<'_>) -> Option<Elf<'f>> {
    let (name, build_id) = file.alt_link()?;
    let name = Path::new(OsStr::from_bytes(name));
    let path = at.parent().map_or_else(|| name.to_owned(), |folder| folder.join(name));
    let mut candidates = finder.by_source(&path);
    candidates.extend(finder.by_build_id(build_id));
    let right = |(_, file)| Elf::open(store, file).filter(|elf| elf.build_id() == build_id);
    candidates.into_iter().find_map(right).or_else(|| finder.remote(build_id).and_then(right))
}

/// Opens the package of split debug information. It has the name of the module or of its debug file, with `.dwp`
/// appended, and is next to that file or in a folder of `debug_paths`. Each part in it is found by its own id.
fn package<'f>(store: &'f Store, at: &Path, module: &Path, finder: &Finder<'_>) -> Option<DwarfPackage<Part<'f>>> {
    let with_suffix = |path: &Path| {
        let mut name = path.as_os_str().to_owned();
        name.push(".dwp");
        PathBuf::from(name)
    };
    let mut candidates = finder.by_source(&with_suffix(module));
    if at != module {
        candidates.extend(finder.by_source(&with_suffix(at)));
    }
    candidates.into_iter().find_map(|(_, file)| {
        let elf = Elf::open(store, file)?;
        let section = |id: SectionId| -> Result<_, gimli::Error> { Ok(elf.part(id.dwo_name())) };
        DwarfPackage::load(section, Part::EMPTY).ok()
    })
}
