# Perl's containers, which allocate a small block for nearly every operation: pushes short strings onto the arrays of a
# hash, deletes a key now and then, and splits a string. Almost every string has a buffer of its own from malloc.
# Argument: the number of rounds.
use strict;
use warnings;

my $rounds = $ARGV[0] // 1;
my $line   = join ',', map { "field$_" } 1 .. 5;
my (%lists, $fields);
for my $round (1 .. $rounds) {
    push @{ $lists{ $round % 97 } }, "item $round", "next $round";
    delete $lists{ $round * 31 % 97 } if $round % 16 == 0;
    my @parts = split /,/, $line;
    $fields += @parts;
}
print scalar(keys %lists), " keys, $fields fields\n";
