# Four interpreters on threads of their own, each a copy of the first, with a signal handler. No exact count is compared,
# only the identities of `Oracle::Identities` (tests/src/zoo.rs).
use strict;
use threads;
use Thread::Queue;
$SIG{USR1} = sub { };
my $gate = Thread::Queue->new;
my @threads = map { threads->create(sub { $gate->dequeue; my %h = map { $_ => 'x' x $_ } 1 .. 1000; my $n = 0; $n += length for values %h; return $n }) } 1 .. 4;
$| = 1;
print "ready\n";
my $line = <STDIN>;
kill USR1 => $$;
$gate->enqueue(1) for 1 .. 4;
my $sum = 0;
$sum += $_->join for @threads;
print "$sum\n";
