//! Every stack of an attached recording is also in a launched recording of the same program.
use heaptrack_tests::attach::{Session, Target};
use heaptrack_tests::report::Frame;
use heaptrack_tests::run::heaptrack;
use heaptrack_tests::targets::{sources, target};
use heaptrack_tests::{Folder, Report, Site};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The distinct stacks of the sites for which `is_wanted` returns true.
fn stacks(report: &Report, is_wanted: impl Fn(&Site) -> bool) -> BTreeSet<Vec<Frame>> {
    report.sites().into_iter().filter(|site| is_wanted(site)).map(|site| site.frames).collect()
}

/// Records the same work of the same program twice: launched, and attached to before the work begins.
fn both(command: &[&str]) -> (Report, Report) {
    let folder = Folder::new();
    let trace = folder.join("launched.htz");
    let mut launch = Command::new(heaptrack());
    launch.args(["-r", "-q", "-o"]).arg(&trace).arg("--").args(command);
    let mut target = Target::spawn(&mut launch);
    assert_eq!((target.line(), target.tell("go")), ("ready".to_owned(), "done".to_owned()));
    assert_eq!(target.finish().0, 0);
    let launched = Report::of(&trace);
    let mut target = Target::spawn(Command::new(command[0]).args(&command[1..]));
    assert_eq!(target.line(), "ready");
    let session = Session::attach(target.pid, &["--no-symbols"]);
    assert_eq!(target.tell("go"), "done");
    let attached = session.detach().report();
    (launched, attached)
}

/// Asserts that every wanted stack of the attached recording is in the launched one, and that there are at least
/// `least` of them.
fn assert_same(launched: &Report, attached: &Report, is_wanted: impl Fn(&Site) -> bool, least: usize) {
    let (there, here) = (stacks(launched, &is_wanted), stacks(attached, &is_wanted));
    let unknown: Vec<_> = here.difference(&there).take(1).collect();
    assert!(unknown.is_empty(), "{} of {}, the first: {unknown:?}", here.difference(&there).count(), here.len());
    assert!(here.len() >= least, "{} stacks", here.len());
    assert_eq!(attached.total("lost_events"), 0);
}

fn in_module<'a>(module: &'a Path) -> impl Fn(&Site) -> bool + 'a {
    move |site| site.leaf_module().map(PathBuf::as_path) == Some(module)
}

#[test]
fn a_program_in_c_plus_plus() {
    let path = target("attach_shapes_cpp");
    let (launched, attached) = both(&[path.to_str().unwrap()]);
    assert_same(&launched, &attached, |_| true, 10);
    assert_eq!(launched.of_size(777).allocations, attached.of_size(777).allocations);
    assert_eq!(attached.of_size(777).allocations, 50);
}

#[test]
fn a_program_in_rust() {
    let path = target("attach_shapes_rs");
    let (launched, attached) = both(&[path.to_str().unwrap()]);
    assert_same(&launched, &attached, in_module(&path), 5);
    assert_eq!((launched.of_size(777).allocations, attached.of_size(777).allocations), (50, 50));
}

#[test]
fn python() {
    let script = sources().join("attach_shapes.py");
    let path = "/usr/bin/python3.11";
    let (launched, attached) = both(&[path, script.to_str().unwrap()]);
    assert_same(&launched, &attached, in_module(Path::new(path)), 20);
}

#[test]
fn node() {
    let script = sources().join("attach_shapes.js");
    let node = Command::new("sh").args(["-c", "command -v node"]).output().unwrap();
    let path = String::from_utf8_lossy(&node.stdout).trim().to_owned();
    // Garbage collections of V8 happen at other times and in other compiled code in each run. So only the stacks of the
    // buffers are compared.
    let (launched, attached) = both(&[&path, "--jitless", script.to_str().unwrap()]);
    let is_buffer = |site: &Site| (10_000..10_300).contains(&(site.allocated_bytes / site.allocations.max(1)));
    assert_same(&launched, &attached, is_buffer, 1);
    let deepest = stacks(&attached, is_buffer).iter().map(Vec::len).max();
    assert!(deepest > Some(20), "{deepest:?}");
}
