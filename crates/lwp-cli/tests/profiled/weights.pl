use strict;
use warnings;

sub light {
    my ($n) = @_;
    my $total = 0;
    for my $i (0 .. $n - 1) {
        $total += $i & 7;
    }
    return $total;
}

sub heavy {
    my ($n) = @_;
    my $total = 0;
    for my $i (0 .. 3 * $n - 1) {
        $total += $i & 7;
    }
    return $total;
}

package Shape;

sub area {
    my ($self, $n) = @_;
    my $first = main::light($n);
    return $first + main::heavy($n);
}

package main;

sub twice {
    my ($n) = @_;
    my $total = 0;
    $total += light($_) for $n, $n;
    return $total;
}

sub main {
    my $total = 0;
    for (1 .. 20) {
        $total += Shape->area(3000);
        $total += twice(3000);
        my @all = sort { heavy(3000) > 0 ? $a <=> $b : 0 } 2, 1;
        $total += eval { light(3000) } + $all[0];
    }
    print "$total @ARGV\n";
}

main();
