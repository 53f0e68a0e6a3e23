my %seen; my $text = "the quick brown fox jumps over the lazy dog and runs away " x 2000;
for my $turn (1..3) {
  $seen{$_}++ for $text =~ /[a-z]+/g;
  my @ranked = sort { $seen{$b} <=> $seen{$a} || $a cmp $b } map { "$_$turn" } split / /, $text;
  my $out = join ",", map { sprintf "%s:%d", $_, $seen{$_} // 0 } @ranked;
}
