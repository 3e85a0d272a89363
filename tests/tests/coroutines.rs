//! Programs that run on stacks of their own making: a stack may end in a zero, be unmapped, or be another one at the next event.
use heaptrack_tests::{Program, scale};

/// What was remembered of a stack that ended in a zero was overwritten by the next walk, which led to other fibers' stacks.
#[test]
fn stacks_that_end_in_a_zero_and_are_unmapped() {
    let program = Program::target("fibers").arg(scale::count(10_000).to_string());
    let outcome = program.same_output();
    let blocks: u64 = outcome.stdout.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number");
    let of_fibers = outcome.whole_report().of_size(48);
    assert_eq!((of_fibers.allocations, of_fibers.leaked_allocations), (blocks, 0));
}

/// The root of a stack that is too deep was compared without a proof, though its stack was gone.
#[test]
fn deep_stacks_that_are_unmapped() {
    let report = Program::target("deep_fibers").same_output().whole_report();
    let of_fibers = report.of_size(32);
    assert_eq!((of_fibers.allocations, of_fibers.leaked_allocations), (400, 0));
}

/// What a frame pointer led to was remembered, though it was above the stack and could be unmapped.
#[test]
fn data_above_a_stack_that_are_unmapped() {
    let report = Program::target("data_above_stack").same_output().whole_report();
    let of_program = report.of_size(1000);
    assert_eq!((of_program.allocations, of_program.leaked_allocations), (200, 0));
}

/// Fibers, enumerators and threads of a real program, which hung in the comparison of a circle of frames.
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
