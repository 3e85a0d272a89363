//! Finds the program, and decides before its start whether it can be recorded.
//!
//! Receives: the word on the command line. Returns: the file to execute, or one sentence with an exit code. Must hold:
//! nothing is started or written here. There is an answer for every content of the file.
use crate::definitions::{self, Scope};
use object::Endianness;
use object::ReadRef;
use object::elf;
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a program cannot be run or recorded: one sentence, and the exit code that goes with it.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: u8,
    pub sentence: String,
}

pub const NOT_FOUND: u8 = 127;
pub const NOT_POSSIBLE: u8 = 126;

fn refuse<T>(path: &Path, sentence: &str) -> Result<T, Refusal> {
    Err(Refusal { code: NOT_POSSIBLE, sentence: format!("{} {sentence}", path.display()) })
}

#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    /// The file that is really executed, which is the interpreter for a script.
    pub image: PathBuf,
    /// The address of the function with its LeakSanitizer suppressions, in the image's own address space; 0 = there is
    /// none. Programs rarely export it.
    pub suppressions: u64,
    pub way: Way,
}

/// How our code gets into a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// The loader preloads our library.
    #[default]
    Preload,
    /// It has no loader, so it is patched when it is executed.
    PatchStatic,
    /// It has a loader, but it defines malloc itself, so it is patched when the loader is done.
    PatchDynamic,
}

/// What is known about the file that is really executed. The fields are as in `Program`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Image {
    path: PathBuf,
    suppressions: u64,
    way: Way,
}

/// The most interpreters of interpreters. The kernel allows four.
const MOST_SCRIPTS: usize = 4;
/// Bytes 4, 5 and 18 of the only ELF files that we record.
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const EM_X86_64: u16 = 62;
const MALLOC: &[u8] = b"malloc";
const SUPPRESSIONS: &[u8] = b"__lsan_default_suppressions";

/// Tools that replace the allocator and must be loaded first. For each: a function that it defines in the program, a
/// part of its library's name (GCC's and Clang's), and its name.
const SANITIZERS: [(&[u8], &[u8], &str); 3] = [
    (b"__asan_init", b"asan.so", "AddressSanitizer"),
    (b"__hwasan_init", b"hwasan.so", "HWAddressSanitizer"),
    (b"__msan_init", b"msan.so", "MemorySanitizer"),
];

type Section = elf::SectionHeader64<Endianness>;

/// The most bytes that are read of a dynamic section or its strings.
const MOST_DYNAMIC: u64 = 16 << 20;

fn bytes_of(file: &File, section: &Section, endian: Endianness) -> Option<Vec<u8>> {
    let mut bytes = vec![0; section.sh_size(endian).min(MOST_DYNAMIC) as usize];
    file.read_exact_at(&mut bytes, section.sh_offset(endian)).ok()?;
    Some(bytes)
}

/// Returns the names of the libraries that the program itself asks the loader for, or `None` if its tables are damaged.
fn needed(file: &File, sections: &[Section], endian: Endianness) -> Option<Vec<Vec<u8>>> {
    const DT_NEEDED: u64 = 1;
    let dynamic = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_DYNAMIC)?;
    let strings = bytes_of(file, sections.get(dynamic.sh_link(endian) as usize)?, endian)?;
    let entries = bytes_of(file, dynamic, endian)?;
    let (words, _) = entries.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let name = |[tag, value]: &[[u8; 8]; 2]| {
        let at = usize::try_from(u64::from_le_bytes(*value)).ok().filter(|_| u64::from_le_bytes(*tag) == DT_NEEDED)?;
        strings.get(at..)?.split(|byte| *byte == 0).next().map(<[u8]>::to_vec)
    };
    Some(pairs.iter().filter_map(name).collect())
}

pub fn find(word: &OsStr) -> Result<Program, Refusal> {
    let path = look_up(word, std::env::var_os("PATH").as_deref())?;
    let Image { path: image, suppressions, way } = check(&path, MOST_SCRIPTS)?;
    Ok(Program { path, image, suppressions, way })
}

/// Returns the path of a helper program.
pub fn look_up_in_path(name: &str) -> Result<PathBuf, Refusal> {
    look_up(OsStr::new(name), std::env::var_os("PATH").as_deref())
}

/// Searches as a shell does: a word with a slash is a path, any other word is looked up in PATH.
fn look_up(word: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, Refusal> {
    let missing = |sentence: String| Err(Refusal { code: NOT_FOUND, sentence });
    if word.is_empty() {
        return missing("the name of the program is empty".to_owned());
    }
    if word.as_bytes().contains(&b'/') {
        let path = PathBuf::from(word);
        return match path.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                missing(format!("{}: no such file", path.display()))
            }
            Err(error) => refuse(&path, &format!("cannot be looked at: {error}")),
            Ok(_) => Ok(path),
        };
    }
    let folders = search.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    let mut unusable = None;
    for folder in std::env::split_paths(folders) {
        let path = if folder.as_os_str().is_empty() { Path::new(".").join(word) } else { folder.join(word) };
        if path.is_file() {
            if is_executable(&path) {
                return Ok(path);
            }
            unusable.get_or_insert(path);
        }
    }
    unusable.map_or_else(|| missing(format!("{}: not found in PATH", word.display())), Ok)
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Follows scripts to the file that is really executed, and decides whether that file can be recorded.
fn check(path: &Path, scripts_left: usize) -> Result<Image, Refusal> {
    let Ok(metadata) = path.metadata() else { return refuse(path, "cannot be looked at") };
    if metadata.is_dir() {
        return refuse(path, "is a folder, not a program");
    }
    if !metadata.is_file() || !is_executable(path) {
        return refuse(path, "is not executable (run chmod +x)");
    }
    let mut start = Vec::new();
    let file = match File::open(path) {
        Ok(file) => file,
        // The file is executable but not readable. The kernel can run it, and nothing more is known.
        Err(_) => return Ok(Image { path: path.to_path_buf(), ..Image::default() }),
    };
    if (&file).take(512).read_to_end(&mut start).is_err() {
        return refuse(path, "cannot be read");
    }
    if let Some(line) = start.strip_prefix(b"#!") {
        return check_script(path, line, scripts_left);
    }
    if !start.starts_with(&elf::ELFMAG) {
        return refuse(path, "is neither an ELF program nor a script that starts with #!");
    }
    if gains_rights(path, &metadata) {
        return refuse(
            path,
            "is setuid, setgid or has file capabilities, so the loader ignores us: run heaptrack as root or on a copy without them",
        );
    }
    check_elf(path, &file)
}

fn check_script(path: &Path, line: &[u8], scripts_left: usize) -> Result<Image, Refusal> {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let Some(interpreter) = words.next().filter(|_| scripts_left > 0) else {
        return refuse(path, "names no interpreter in its first line");
    };
    let interpreter = PathBuf::from(OsString::from_vec(interpreter.to_vec()));
    if !interpreter.exists() {
        return refuse(path, &format!("is a script for {}, which is not there", interpreter.display()));
    }
    check(&interpreter, scripts_left - 1)
}

/// Returns true if the kernel tells the loader to ignore LD_PRELOAD.
fn gains_rights(path: &Path, metadata: &Metadata) -> bool {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let sets_user = metadata.mode() & 0o4000 != 0 && metadata.uid() != user.as_raw();
    let sets_group = metadata.mode() & 0o2010 == 0o2010 && metadata.gid() != group.as_raw();
    let mut capabilities = [0u8; 64];
    let has_capabilities =
        rustix::fs::getxattr(path, "security.capability", &mut capabilities).is_ok_and(|length| length > 0);
    sets_user || sets_group || (has_capabilities && !user.is_root())
}

fn check_elf(path: &Path, file: &File) -> Result<Image, Refusal> {
    let data = ReadCache::new(file);
    let machine = data.read_at::<object::U16<object::LittleEndian>>(18).map(|m| m.get(object::LittleEndian));
    let class = data.read_bytes_at(4, 2).unwrap_or_default();
    if machine.is_ok_and(|machine| machine != EM_X86_64) || class != [CLASS_64, LITTLE_ENDIAN] {
        return refuse(path, "is built for another architecture; this heaptrack records 64-bit x86 programs");
    }
    // Reads only the headers, because `object` would read all symbols of a whole file at once.
    let headers = || {
        let header = elf::FileHeader64::<Endianness>::parse(&data)?;
        let endian = header.endian()?;
        Ok::<_, object::Error>((endian, header.program_headers(endian, &data)?, header.section_headers(endian, &data)?))
    };
    let Ok((endian, segments, sections)) = headers() else {
        return refuse(path, "is a damaged ELF file");
    };
    let has_interpreter = segments.iter().any(|segment| segment.p_type(endian) == elf::PT_INTERP);
    // The loader itself has no interpreter. It uses LD_PRELOAD for the program that it is given.
    let is_loader = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-"));
    let way = if has_interpreter || is_loader { Way::Preload } else { Way::PatchStatic };
    check_allocator(path, file, sections, endian, is_loader, way)
}

/// Refuses a program whose allocator hides its allocations.
fn check_allocator(
    path: &Path,
    file: &File,
    sections: &[elf::SectionHeader64<Endianness>],
    endian: Endianness,
    is_loader: bool,
    way: Way,
) -> Result<Image, Refusal> {
    let initializers = SANITIZERS.map(|(initializer, _, _)| initializer);
    let names: Vec<&'static [u8]> = [MALLOC, SUPPRESSIONS].into_iter().chain(initializers).collect();
    let found = definitions::find(file, sections, endian, &names, Scope::Global);
    let of = |name: &[u8]| found.iter().find(|one| one.name == name);
    let libraries = needed(file, sections, endian).unwrap_or_default();
    let is_built_with = |(initializer, library, _): &&(&[u8], &[u8], &str)| {
        of(initializer).is_some() || libraries.iter().any(|name| memchr::memmem::find(name, library).is_some())
    };
    if let Some((_, _, tool)) = SANITIZERS.iter().find(is_built_with) {
        return refuse(path, &format!("is built with {tool}, which replaces the allocator: build it without"));
    }
    if way == Way::PatchStatic {
        // Whatever allocator it has is found by its symbols when it is executed.
        return Ok(Image { path: path.to_path_buf(), way, ..Image::default() });
    }
    // Our library would not be asked for malloc.
    let way = if of(MALLOC).is_some() && !is_loader { Way::PatchDynamic } else { way };
    Ok(Image { path: path.to_path_buf(), suppressions: of(SUPPRESSIONS).map_or(0, |one| one.address), way })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn code(path: &Path) -> u8 {
        check(path, MOST_SCRIPTS).unwrap_err().code
    }

    fn file(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("heaptrack-program-test.{}.{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn programs_are_looked_up_as_a_shell_does() {
        assert_eq!(look_up(OsStr::new("sh"), Some(OsStr::new("/nowhere:/bin"))).unwrap(), Path::new("/bin/sh"));
        assert_eq!(look_up(OsStr::new("no-such"), Some(OsStr::new("/bin"))).unwrap_err().code, NOT_FOUND);
        assert_eq!(look_up(OsStr::new("/no/such"), None).unwrap_err().code, NOT_FOUND);
        assert_eq!(look_up(OsStr::new(""), None).unwrap_err().code, NOT_FOUND);
    }

    #[test]
    fn an_ordinary_program_passes() {
        let shell = Image { path: PathBuf::from("/bin/sh"), ..Image::default() };
        assert_eq!(check(Path::new("/bin/sh"), 4), Ok(shell));
    }

    #[test]
    fn hostile_files_have_an_answer() {
        let shell = std::fs::read("/bin/sh").unwrap();
        for length in [4, 5, 17, 19, 20, 63, 64, 65, 200, 1000] {
            let path = file("cut", &shell[..length]);
            assert_eq!(code(&path), NOT_POSSIBLE, "{length}");
            std::fs::remove_file(path).unwrap();
        }
        for (at, byte) in [(4, 1u8), (18, 183), (5, 2)] {
            let mut bytes = shell.clone();
            bytes[at] = byte;
            let path = file("foreign", &bytes);
            assert!(check(&path, 4).unwrap_err().sentence.contains("another architecture"));
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn scripts_are_followed() {
        let good = file("good", b"#! /bin/sh -e\necho\n");
        assert_eq!(check(&good, 4).unwrap().path, Path::new("/bin/sh"));
        let bad = file("bad", b"#!/no/such/interpreter\n");
        assert!(check(&bad, 4).unwrap_err().sentence.contains("/no/such/interpreter"));
        let round = file("round", b"");
        std::fs::write(&round, format!("#!{}\n", round.display())).unwrap();
        assert_eq!(code(&round), NOT_POSSIBLE);
        let text = file("text", b"echo\n");
        assert_eq!(code(&text), NOT_POSSIBLE);
        for path in [good, bad, round, text] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
