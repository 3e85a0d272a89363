//! DWARF of one module: the main part, what dwz moved away, and split parts that are loaded when needed.
use crate::elf::{Elf, Slice};
use crate::finder::Finder;
use crate::store::Store;
use addr2line::{Context, FrameIter, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{Dwarf, DwarfPackage, SectionId};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) struct DebugInfo<'f> {
    context: Context<Slice<'f>>,
    package: Option<DwarfPackage<Slice<'f>>>,
    store: &'f Store,
}

/// What lookups of names and lines never read, and what is most of some files.
const fn is_read(id: SectionId) -> bool {
    !matches!(
        id,
        SectionId::DebugLoc
            | SectionId::DebugLocLists
            | SectionId::DebugMacinfo
            | SectionId::DebugMacro
            | SectionId::DebugNames
            | SectionId::DebugPubNames
            | SectionId::DebugPubTypes
            | SectionId::DebugTypes
            | SectionId::DebugFrame
            | SectionId::EhFrame
            | SectionId::EhFrameHdr
    )
}

fn load<'f>(file: &Elf<'f>) -> Dwarf<Slice<'f>> {
    let section =
        |id: SectionId| -> Result<_, std::convert::Infallible> { Ok(file.reader(is_read(id).then(|| id.name()))) };
    match Dwarf::load(section) {
        Ok(dwarf) => dwarf,
        Err(never) => match never {},
    }
}

fn load_split<'f>(file: &Elf<'f>) -> Dwarf<Slice<'f>> {
    let section = |id: SectionId| -> Result<_, std::convert::Infallible> {
        Ok(file.reader(id.dwo_name().filter(|_| is_read(id))))
    };
    match Dwarf::load(section) {
        Ok(dwarf) => dwarf,
        Err(never) => match never {},
    }
}

/// Real programs nest blocks and inlined functions a few dozen deep. The reader goes down by recursion, so what is
/// deeper could end the process by an overflow of its stack.
const DEEPEST: isize = 2000;

fn is_too_deep(dwarf: &Dwarf<Slice<'_>>) -> bool {
    let mut units = dwarf.units();
    while let Ok(Some(unit)) = units.next() {
        let Ok(abbreviations) = dwarf.abbreviations(&unit) else { continue };
        let Ok(mut entries) = unit.entries_raw(&abbreviations, None) else { continue };
        while !entries.is_empty() {
            match entries.read_abbreviation() {
                Ok(Some(abbreviation)) if entries.skip_attributes(abbreviation.attributes()).is_err() => break,
                Err(_) => break,
                Ok(_) if entries.next_depth() > DEEPEST => return true,
                Ok(_) => {}
            }
        }
    }
    false
}

impl<'f> DebugInfo<'f> {
    /// `file` has the debug information of the module at `module`; `at` is where it lies itself.
    pub(crate) fn new(
        store: &'f Store,
        file: &Elf<'f>,
        at: &Path,
        module: &Path,
        finder: &Finder<'_>,
    ) -> Result<Self, String> {
        let mut dwarf = load(file);
        if let Some(shared) = alternate(store, file, at, finder) {
            let shared = load(&shared);
            if is_too_deep(&shared) {
                return Err("it is nested too deep".into());
            }
            dwarf.set_sup(shared);
        }
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        if is_too_deep(&dwarf) {
            return Err("it is nested too deep".into());
        }
        let package = package(store, at, module, finder);
        Ok(DebugInfo { context: Context::from_dwarf(dwarf).map_err(|error| error.to_string())?, package, store })
    }

    pub(crate) fn frames(&self, address: u64, finder: &Finder<'_>) -> Result<FrameIter<'_, Slice<'f>>, gimli::Error> {
        let mut lookup = self.context.find_frames(address);
        loop {
            match lookup {
                LookupResult::Output(frames) => return frames,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.split(&load, finder));
                }
            }
        }
    }

    /// The part of one compilation, from the package or from its own file; only the right one.
    fn split(&self, wanted: &SplitDwarfLoad<Slice<'f>>, finder: &Finder<'_>) -> Option<Arc<Dwarf<Slice<'f>>>> {
        if let Some(package) = &self.package
            && let Ok(Some(found)) = package.find_cu(wanted.dwo_id, &wanted.parent)
        {
            return Some(Arc::new(found)).filter(|found| !is_too_deep(found));
        }
        let name = as_path(wanted.path.as_ref()?);
        let path = wanted.comp_dir.as_ref().map_or_else(PathBuf::new, |folder| as_path(folder).to_owned()).join(name);
        finder.by_source(&path).into_iter().find_map(|(_, file)| {
            let mut dwarf = load_split(&Elf::parse(self.store, self.store.file(file))?);
            let header = dwarf.units().next().ok()??;
            let unit = dwarf.unit(header).ok()?;
            if unit.dwo_id != Some(wanted.dwo_id) || is_too_deep(&dwarf) {
                return None;
            }
            dwarf.make_dwo(&wanted.parent);
            Some(Arc::new(dwarf))
        })
    }
}

fn as_path<'a>(bytes: &'a Slice<'_>) -> &'a Path {
    Path::new(OsStr::from_bytes(bytes.slice()))
}

/// The file that dwz moved common parts to. Its build-id stands in the link.
fn alternate<'f>(store: &'f Store, file: &Elf<'f>, at: &Path, finder: &Finder<'_>) -> Option<Elf<'f>> {
    let (name, build_id) = file.alt_link()?;
    let name = Path::new(OsStr::from_bytes(name));
    let path = at.parent().map_or_else(|| name.to_owned(), |folder| folder.join(name));
    let mut candidates = finder.by_source(&path);
    candidates.extend(finder.by_build_id(build_id));
    candidates.into_iter().find_map(|(_, file)| {
        let elf = Elf::parse(store, store.file(file))?;
        (elf.build_id() == build_id).then_some(elf)
    })
}

/// `program.dwp`, beside the module or beside its debug file. Each part in it is found by its own id.
fn package<'f>(store: &'f Store, at: &Path, module: &Path, finder: &Finder<'_>) -> Option<DwarfPackage<Slice<'f>>> {
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
        let elf = Elf::parse(store, store.file(file))?;
        // Each part is cut out of every section, so here all of them are needed.
        let section = |id: SectionId| -> Result<_, gimli::Error> { Ok(elf.reader(id.dwo_name())) };
        DwarfPackage::load(section, gimli::EndianSlice::new(&[], gimli::LittleEndian)).ok()
    })
}
