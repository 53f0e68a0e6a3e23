# Subroutines that are made and dropped while their samples are taken, called in many ways.
use strict;
use warnings;

sub recurse { my ($depth) = @_; return $depth ? recurse($depth - 1) + 1 : 0 }

package Ordered {
    sub new { my ($class, $key) = @_; return bless {key => $key}, $class }
    sub key { return $_[0]{key} }
}

my $total = 0;
for my $round (1 .. 150) {
    my $made = eval "sub { my \$sum = 0; \$sum += \$_ * $round for 1 .. 40; return \$sum }";
    $total += $made->();
    eval "sub made_$round { return \$_[0] + $round } \$total += made_$round(3); 1" or die;
    $total += recurse($round % 29);
    eval { die "thrown\n" if $round % 3 == 0; $total++; 1 } or $total += length $@;
    my @sorted = sort { $a->key % 31 <=> $b->key % 31 } map { Ordered->new(7 * $_) } 1 .. 40;
    $total += $sorted[0]->key;
    (my $text = "a1b22c333") =~ s/([0-9]+)/recurse(length $1)/ge;
    $total += length $text;
}
print "$total\n";
