//! Programs that switch between stacks they made themselves. A stack may end in a zero, may be unmapped, and may be
//! another one at the next event.
use heaptrack_tests::{Program, scale};

/// Regression test: the remembered copy of a stack that ended in a zero was overwritten by the next walk, and then led
/// to the stacks of other fibers.
#[test]
fn stacks_that_end_in_a_zero_and_are_unmapped() {
    let program = Program::target("fibers").arg(scale::count(10_000).to_string());
    let outcome = program.same_output();
    let blocks: u64 = outcome.stdout.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number");
    assert_eq!(outcome.whole_report().counts(48), (blocks, 0));
}

/// Regression test: the root of a very deep stack was compared with memory that was no longer readable.
#[test]
fn deep_stacks_that_are_unmapped() {
    let report = Program::target("deep_fibers").same_output().whole_report();
    assert_eq!(report.counts(32), (400, 0));
}

/// Regression test: a frame pointer led to data above the stack. The address was remembered, although that memory could
/// be unmapped.
#[test]
fn data_above_a_stack_that_are_unmapped() {
    let report = Program::target("data_above_stack").same_output().whole_report();
    assert_eq!(report.counts(1000), (200, 0));
}

/// Regression test: fibers, enumerators and threads of a real program. The comparison of frames hung in a cycle of
/// frame pointers.
#[test]
fn fibers_of_ruby() {
    const SCRIPT: &str = "
        fibers = 200.times.map { |i| Fiber.new { x = []; 5.times { |j| x << ('a' * (i + j)); Fiber.yield x.size }; x } }
        5.times { fibers.each(&:resume) }
        puts fibers.map { |fiber| fiber.resume.sum(&:size) }.sum
        squares = Enumerator.new { |y| n = 0; loop { y << n * n; n += 1 } }
        puts squares.lazy.select(&:even?).first(100).sum
        puts 8.times.map { |i| Thread.new { Fiber.new { 'b' * i }.resume.size } }.map(&:value).sum
    ";
    let outcome = Program::new("ruby").args(["--disable-gems", "-e", SCRIPT]).same_output();
    assert_eq!(outcome.stdout, "101500\n1313400\n28\n");
    outcome.whole_report();
}
