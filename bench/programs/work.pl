# Hashes, text and regular expressions in perl.
my (%table, $sum);
for my $i (0 .. 120000) { $table{ "key " . ($i * 7919 % 100003) } = [ $i, "x" x ($i % 60) ]; }
for my $key (sort keys %table) { $sum += length($table{$key}[1]) + $table{$key}[0]; }
my $text = join " ", map { "word$_" } 0 .. 100000;
my $count = () = $text =~ /d\d*7\b/g;
$text =~ s/(\d)(\d)/$2$1/g;
print "$sum $count ", length($text), " ", unpack("%32C*", $text), "\n";
