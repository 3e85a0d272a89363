//! Many of the target programs alone. Each builds without a warning, runs, and prints what its header comment promises.
//! A failure here is a mistake in the tests, not in the code under test.
use heaptrack_tests::targets::target;
use heaptrack_tests::{Folder, Program};

fn says(name: &str, arguments: &[&str], code: i32, stdout: &str) {
    let outcome = Program::target(name).args(arguments).alone();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (code, stdout), "{name}: {}", outcome.stderr);
}

#[test]
fn targets_keep_their_promises() {
    says("plain", &[], 0, "plain done\n");
    says("grow", &[], 0, "grow done\n");
    says("kinds", &[], 0, "kinds done\n");
    says("peak", &[], 0, "peak done\n");
    says("containers", &[], 0, "containers 200 4357\n");
    says("throwing", &[], 0, "caught 300\n");
    says("boxes", &[], 0, "boxes 2016 247\n");
    says("hooks", &[], 0, "hooks: 38 checks, 0 failed\n");
    says("short_threads", &["50"], 0, "short threads 50\n");
    says("thread_ends", &[], 0, "thread ends done\n");
    says("before_and_after", &[], 0, "main done\ndestructor done\n");
    says("exec_in_place", &["3"], 33, "image 3, 0 variables of ours, LD_PRELOAD=(none)\n");
    says("altstack", &[], 0, "survived 5\n");
    says("coroutines", &[], 0, "coroutines 50 turns 1000\n");
    says("small_stacks", &[], 0, "small stacks done\n");
    says("jumps", &[], 0, "jumped 100\n");
    says("no_frame_pointer", &[], 0, "sum 2223500\n");
    says("jit", &[], 0, "jit done\n");
    says("trampoline", &[], 0, "trampoline done\n");
    says("collected", &[], 0, "sum 15600000, collected yes\n");
    says("suppressed", &[], 0, "suppressed done\n");
    says("leaky", &[], 0, "leaky done\n");
    says("own_malloc", &[], 0, "own malloc ran\n");
    says("hello", &["x"], 11, "hello 2 x\n");
    says("hello_static", &[], 0, "hello 1 \n");
    says("hold", &["3"], 0, "held 48 of 48, wrote 0\n");
}

#[test]
fn targets_with_files() {
    let folder = Folder::new();
    let counted = Program::target("counter").arg(folder.join("c")).args(["3", "0", "1000"]).alone();
    assert_eq!((counted.code, counted.stdout.as_str()), (3, "counted 3000\n"));
    let reuse = Program::target("reuse").arg(target("libred.so")).arg(target("libblue.so")).alone();
    assert_eq!((reuse.code, reuse.stdout.as_str()), (0, "same address: yes\n"));
    let plugin = Program::target("runpath").arg(target("libplugin.so")).alone();
    assert_eq!((plugin.code, plugin.stdout.as_str()), (0, "plugin ok\n"));
    let signals = Program::target("signals").args(["300000", "jump"]).alone();
    assert_eq!(signals.code, 0, "{}", signals.stderr);
}
