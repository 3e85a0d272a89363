//! Files that are elsewhere, missing, or of another build: the right one is found, or the reason is reported.
#![allow(clippy::unwrap_used, reason = "a test")]
mod common;
use common::*;
use format::{Module, SymbolState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use symbols::{Finder, Frame, Resolver, State, Store, Target};

const EXACT: u64 = 1 << 47;

fn address_of(program: &Path, name: &str) -> u64 {
    let list = readelf(&["-s"], program);
    let line = list.lines().find(|line| line.split_whitespace().nth(7) == Some(name)).unwrap();
    u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
}

fn ask(module: &Module, search: &Search, address: u64) -> (State, Vec<Frame>) {
    let store = Store::new();
    let mut resolver = Resolver::open(&store, module, Finder { search, target: None }, &[]);
    let frames = resolver.frames(address | EXACT);
    (resolver.state().clone(), frames)
}

fn told(frames: &[Frame]) -> (String, Option<PathBuf>, bool) {
    let last = frames.last().unwrap();
    (last.name.as_ref().unwrap().short.clone(), last.file.as_deref().map(PathBuf::from), last.line.is_some())
}

const TOTAL: &str = "_ZN4shop5totalERKNS_5StoreINS_4ItemEEE";

/// (folder, stripped program, its debug file, what was recorded, address of `shop::total`)
fn stripped(flags: &[&str]) -> (Folder, PathBuf, PathBuf, Module, u64) {
    let folder = Folder::new();
    let program = folder.build("program", flags);
    let address = address_of(&program, TOTAL);
    let debug = folder.join("program.debug");
    run("objcopy", &["--only-keep-debug".as_ref(), program.as_os_str(), debug.as_os_str()]);
    run("strip", &[program.as_os_str()]);
    let module = module(&program);
    (folder, program, debug, module, address)
}

fn link(program: &Path, debug: &Path) {
    let option = format!("--add-gnu-debuglink={}", debug.display());
    run("objcopy", &[option.as_ref(), program.as_os_str()]);
}

#[test]
fn a_stripped_program_says_that_it_has_no_names() {
    let (_folder, _, debug, module, address) = stripped(&[]);
    std::fs::remove_file(debug).unwrap();
    let (state, frames) = ask(&module, &Search::default(), address);
    assert_eq!((state.state, frames), (SymbolState::Symbols, vec![]), "it has only exported symbols");
}

/// `.symtab` appends a version to the names of exported symbols. If symbols were removed from `.symtab`, only `.dynsym`
/// has all exported ones.
#[test]
fn exported_functions_have_their_plain_names() {
    let folder = Folder::new();
    let (source, versions, library) = (folder.join("lib.c"), folder.join("lib.map"), folder.join("lib.so"));
    let text = "int first_v1(int x) { return x * 3 + 1; }\n__asm__(\".symver first_v1, first@@V1\");\n\
                int second(int x) { return x ^ 5; }\n";
    std::fs::write(&source, text).unwrap();
    std::fs::write(&versions, "V1 { global: first; second; local: *; };\n").unwrap();
    let script = format!("-Wl,--build-id,--version-script={}", versions.display());
    let options = ["-shared", "-fPIC", "-O1", &script, "-o"].map(AsRef::as_ref);
    run("gcc", &[&options[..], &[library.as_os_str(), source.as_os_str()]].concat());
    let address = address_of(&library, "first@@V1");
    let raw = || ask(&module(&library), &Search::default(), address).1[0].name.as_ref().unwrap().raw.clone();
    assert!(sections(&library).contains(".symtab"));
    assert_eq!(raw(), "first");
    run(
        "strip",
        &["--strip-all", "--keep-symbol=second"]
            .map(AsRef::as_ref)
            .into_iter()
            .chain([library.as_os_str()])
            .collect::<Vec<_>>(),
    );
    assert!(sections(&library).contains(".symtab"));
    assert_eq!(raw(), "first", "only `second` is left in `.symtab`");
}

/// Regression test: the shorter symbol had the better name, and then neither was used.
#[test]
fn of_two_symbols_that_begin_together_the_one_that_reaches_the_address_counts() {
    let folder = Folder::new();
    let (source, library) = (folder.join("lib.c"), folder.join("lib.so"));
    let text = "int whole(int x) { return x * 3 + 1; }\n\
                __asm__(\".globl begin\\n.type begin, @function\\n.set begin, whole\\n.size begin, 1\");\n";
    std::fs::write(&source, text).unwrap();
    let options = ["-shared", "-fPIC", "-O1", "-Wl,--build-id", "-o"].map(AsRef::as_ref);
    run("gcc", &[&options[..], &[library.as_os_str(), source.as_os_str()]].concat());
    let start = address_of(&library, "whole");
    let name = |at| ask(&module(&library), &Search::default(), at).1[0].name.as_ref().unwrap().raw.clone();
    assert_eq!((address_of(&library, "begin"), name(start)), (start, "begin".to_owned()));
    assert_eq!(name(start + 1), "whole");
}

/// The sizes that the two symbol tables claim overflow 64 bits when they are added.
#[test]
fn symbol_tables_may_claim_any_size() {
    const SECTION: usize = 64;
    let mut file = vec![0; SECTION * 5];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let mut put =
        |at: usize, number: u64, bytes: usize| file[at..at + bytes].copy_from_slice(&number.to_le_bytes()[..bytes]);
    // The headers of four sections follow the file's own header. The second section has the names.
    let size = SECTION as u64;
    for (at, number, bytes) in [(40, size, 8), (58, size, 2), (60, 4, 2), (62, 1, 2), (2 * SECTION + 4, 3, 4)] {
        put(at, number, bytes);
    }
    for section in [3, 4].map(|number| number * SECTION) {
        // A symbol table, its size, and the section with its strings.
        for (at, number, bytes) in [(4, 2, 4), (32, 1 << 63, 8), (40, 1, 4)] {
            put(section + at, number, bytes);
        }
    }
    let folder = Folder::new();
    let path = folder.join("file");
    std::fs::write(&path, file).unwrap();
    let module = Module { instance: 1, path: path.to_str().unwrap().to_owned(), ..Module::default() };
    let (state, frames) = ask(&module, &Search::default(), 1);
    assert_ne!(state.state, SymbolState::Unreadable, "it is an ELF file");
    assert_eq!(frames, []);
}

#[test]
fn a_debug_file_is_found_by_its_build_id() {
    let (folder, _, debug, module, address) = stripped(&[]);
    let id: String = module.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let place = folder.join("elsewhere/.build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::rename(&debug, place.join(format!("{}.debug", &id[2..]))).unwrap();
    let search = Search { debug_paths: vec![folder.join("elsewhere")], ..Search::default() };
    let (state, frames) = ask(&module, &search, address);
    assert_eq!(state, State { state: SymbolState::Debug, note: String::new() });
    assert_eq!(told(&frames), ("shop::total".into(), Some(source()), true));
    // The program itself may be missing.
    std::fs::remove_file(&module.path).unwrap();
    assert_eq!(told(&ask(&module, &search, address).1).0, "shop::total");
}

#[test]
fn a_debug_link_is_followed_beside_in_debug_and_in_debug_folders() {
    for place in [".", ".debug", "given"] {
        let (folder, program, debug, _, address) = stripped(&[]);
        link(&program, &debug);
        std::fs::create_dir_all(folder.join(place)).unwrap();
        std::fs::rename(&debug, folder.join(place).join("program.debug")).unwrap();
        let search = match place {
            "given" => Search { debug_paths: vec![folder.join(place)], ..Search::default() },
            _ => Search::default(),
        };
        let (state, frames) = ask(&module(&program), &search, address);
        assert_eq!(state.state, SymbolState::Debug, "{place}");
        assert_eq!(told(&frames).0, "shop::total", "{place}");
    }
}

/// Without a build-id the link's CRC decides.
#[test]
fn a_debug_file_of_another_build_is_not_used() {
    for flags in [&["-Wl,--build-id"][..], &["-Wl,--build-id=none"]] {
        let (_folder, program, debug, _, address) = stripped(flags);
        link(&program, &debug);
        let recorded = module(&program);
        assert_eq!(ask(&recorded, &Search::default(), address).0.state, SymbolState::Debug);
        let mut bytes = std::fs::read(&debug).unwrap();
        let at = match recorded.build_id.is_empty() {
            // Without a build-id, a change of any byte changes the CRC. With a build-id, one of its bytes is changed.
            true => bytes.len() - 1,
            false => bytes.windows(20).position(|window| window == recorded.build_id).unwrap(),
        };
        bytes[at] ^= 1;
        std::fs::write(&debug, bytes).unwrap();
        let (state, frames) = ask(&recorded, &Search::default(), address);
        assert!(state.note.ends_with("program.debug belongs to another build and was not used"), "{}", state.note);
        assert_eq!(frames, vec![]);
    }
}

#[test]
fn another_file_at_the_path_is_said_and_not_used() {
    let folder = Folder::new();
    let program = folder.build("program", &[]);
    let address = address_of(&program, TOTAL);
    let mut recorded = module(&program);
    recorded.build_id[3] ^= 0x55;
    let (state, frames) = ask(&recorded, &Search::default(), address);
    assert_eq!((state.state, frames), (SymbolState::Mismatch, vec![]));
    assert!(state.note.contains("is not the file that ran: its build-id is "), "{}", state.note);
    recorded.build_id.clear();
    assert_eq!(ask(&recorded, &Search::default(), address).0.state, SymbolState::Mismatch);
    let gone = Module { path: "/no/such/file".into(), ..recorded };
    let (state, _) = ask(&gone, &Search::default(), address);
    assert_eq!(state, State { state: SymbolState::Missing, note: "/no/such/file is not there".into() });
    let text = Module { path: source().to_string_lossy().into_owned(), ..gone };
    assert_eq!(ask(&text, &Search::default(), 0).0.state, SymbolState::Unreadable);
}

#[test]
fn without_a_build_id_the_time_of_change_decides() {
    let folder = Folder::new();
    let program = folder.build("program", &["-Wl,--build-id=none"]);
    let address = address_of(&program, TOTAL);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let later = Search { started_unix_ns: now + 1_000_000_000, ..Search::default() };
    assert_eq!(ask(&module(&program), &later, address).0.state, SymbolState::Debug);
    let earlier = Search { started_unix_ns: now - 3_600_000_000_000, ..Search::default() };
    let (state, frames) = ask(&module(&program), &earlier, address);
    assert_eq!((state.state, frames), (SymbolState::Mismatch, vec![]));
}

#[test]
fn a_sysroot_is_looked_into() {
    let folder = Folder::new();
    let program = folder.build("program", &[]);
    let address = address_of(&program, TOTAL);
    let recorded = Module { path: "/srv/nowhere/app".into(), ..module(&program) };
    let place = folder.join("root/srv/nowhere");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::rename(&program, place.join("app")).unwrap();
    let search = Search { sysroot: Some(folder.join("root")), ..Search::default() };
    assert_eq!(told(&ask(&recorded, &search, address).1).0, "shop::total");
}

#[test]
fn mini_debug_info_names_functions() {
    let (folder, program, debug, _, address) = stripped(&[]);
    let mini = folder.join("mini");
    std::fs::copy(&debug, &mini).unwrap();
    run("strip", &["-g".as_ref(), mini.as_os_str()]);
    run("xz", &[mini.as_os_str()]);
    let option = format!(".gnu_debugdata={}", folder.join("mini.xz").display());
    run("objcopy", &["--add-section".as_ref(), option.as_ref(), program.as_os_str()]);
    std::fs::remove_file(debug).unwrap();
    let (state, frames) = ask(&module(&program), &Search::default(), address);
    assert_eq!(state.state, SymbolState::Symbols);
    assert_eq!(told(&frames), ("shop::total".into(), None, false));
}

#[test]
fn our_own_vdso_has_names() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with("[vdso]")).unwrap();
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    let mut bytes = vec![0; (number(end) - number(start)) as usize];
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, number(start)).unwrap();
    let folder = Folder::new();
    let copy = folder.join("vdso.so");
    std::fs::write(&copy, bytes).unwrap();
    let recorded = Module { path: "linux-vdso.so.1".into(), ..module(&copy) };
    let list = readelf(&["--dyn-syms"], &copy);
    let line = list.lines().find(|line| line.contains(" __vdso_clock_gettime")).unwrap();
    let address = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
    let (state, frames) = ask(&recorded, &Search::default(), address);
    assert_eq!(state.state, SymbolState::Symbols);
    assert!(told(&frames).0.ends_with("clock_gettime"), "{frames:?}");
}

/// The file of a program is replaced while the program runs. The old file is found even after the program's end.
#[test]
fn a_program_that_was_replaced_while_it_ran() {
    let folder = Folder::new();
    let program = folder.build("program", &[]);
    let address = address_of(&program, TOTAL);
    let recorded = module(&program);
    let sleeping = std::fs::canonicalize(which("sleep")).unwrap();
    let copy = folder.join("sleeper");
    std::fs::copy(&sleeping, &copy).unwrap();
    let mut child = std::process::Command::new(&copy).arg("100").spawn().unwrap();
    let maps = loop {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        if maps.contains("sleeper") {
            break maps;
        }
    };
    let line = maps.lines().find(|line| line.ends_with("sleeper")).unwrap();
    let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    let sleeper = Module { instance: 7, start, ..module(&copy) };
    // Replaced by another program, as a new version would be.
    std::fs::rename(&program, &copy).unwrap();
    let target = Arc::new(Target::new(child.id()));
    target.hold(7, start, &copy);
    child.kill().unwrap();
    child.wait().unwrap();
    let search = Search::default();
    let store = Store::new();
    let finder = Finder { search: &search, target: Some(&target) };
    let state = Resolver::open(&store, &sleeper, finder, &[]).state().clone();
    assert!(matches!(state.state, SymbolState::Symbols | SymbolState::Stripped), "{state:?}");
    // A later reader reports that this is another file.
    let (state, frames) = ask(&sleeper, &search, address);
    assert_eq!((state.state, frames), (SymbolState::Mismatch, vec![]));
    assert_eq!(recorded.build_id, build_id(&copy));
}

/// A process with a root of its own, as in a container. Its paths are valid only inside that root.
#[test]
fn a_path_in_another_root() {
    let folder = Folder::new();
    let program = folder.join("sleeper.c");
    std::fs::write(
        &program,
        "#include <unistd.h>\nint shelf(void) { return pause(); }\nint main(void) { return shelf(); }\n",
    )
    .unwrap();
    let inside = folder.join("root/srv/app");
    std::fs::create_dir_all(&inside).unwrap();
    let built = inside.join("sleeper");
    let flags = ["-g", "-static", "-Wl,--build-id", "-o"].map(std::ffi::OsStr::new);
    run("gcc", &[&flags[..], &[built.as_os_str(), program.as_os_str()][..]].concat());
    // An absolute symbolic link leads to another file inside than outside.
    std::os::unix::fs::symlink("/srv/app/sleeper", folder.join("root/srv/link")).unwrap();
    let address = address_of(&built, "shelf");
    let mut command = std::process::Command::new("unshare");
    let mut child = command.args(["-r", "chroot"]).arg(folder.join("root")).arg("/srv/app/sleeper").spawn().unwrap();
    let exe = format!("/proc/{}/exe", child.id());
    while !std::fs::read_link(&exe).is_ok_and(|path| path.ends_with("srv/app/sleeper")) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let target = Target::new(child.id());
    let search = Search::default();
    for path in ["/srv/app/sleeper", "/srv/link"] {
        let recorded = Module { path: path.into(), ..module(&built) };
        assert_eq!(ask(&recorded, &search, address).0.state, SymbolState::Missing, "not in our own root");
        let store = Store::new();
        let finder = Finder { search: &search, target: Some(&target) };
        let mut resolver = Resolver::open(&store, &recorded, finder, &[]);
        assert_eq!(told(&resolver.frames(address | EXACT)), ("shelf".into(), Some(program.clone()), true), "{path}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The root is held open, so it can be read after all its processes have ended.
    let recorded = Module { path: "/srv/app/sleeper".into(), ..module(&built) };
    let store = Store::new();
    let finder = Finder { search: &search, target: Some(&target) };
    assert_eq!(Resolver::open(&store, &recorded, finder, &[]).state().state, SymbolState::Debug);
}

/// 400,000 nested inlined functions: a recursive reader would overflow its stack.
#[test]
fn debug_information_may_be_nested_without_end() {
    let folder = Folder::new();
    let source = folder.join("deep.s");
    let text = r#"
        .text
        .globl main
        .type main, @function
        main: xor %eax, %eax
        ret
        .Lend: .size main, .-main
        .section .debug_abbrev, "", @progbits
        .byte 1, 0x11, 1, 0x11, 1, 0x12, 6, 0, 0
        .byte 2, 0x2e, 1, 0x3, 8, 0x11, 1, 0x12, 6, 0, 0
        .byte 3, 0x1d, 1, 0x11, 1, 0x12, 6, 0, 0, 0
        .section .debug_info, "", @progbits
        .long .Lstop - .Lstart
        .Lstart: .value 4
        .long 0
        .byte 8, 1
        .quad main
        .long .Lend - main
        .byte 2
        .asciz "main"
        .quad main
        .long .Lend - main
        .rept 400000
        .byte 3
        .quad main
        .long .Lend - main
        .endr
        .rept 400002
        .byte 0
        .endr
        .Lstop:
        .section .note.GNU-stack, "", @progbits
    "#;
    std::fs::write(&source, text).unwrap();
    let program = folder.join("deep");
    let flags = ["-no-pie", "-Wl,--build-id", "-o"].map(std::ffi::OsStr::new);
    run("gcc", &[&flags[..], &[program.as_os_str(), source.as_os_str()][..]].concat());
    let (state, frames) = ask(&module(&program), &Search::default(), address_of(&program, "main"));
    assert_eq!(state.state, SymbolState::Debug);
    assert_eq!(frames.len(), 1, "nothing is inlined that deep");
    assert_eq!(told(&frames), ("main".into(), None, false));
}
