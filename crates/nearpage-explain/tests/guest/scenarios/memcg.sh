# machine: two
# truth: rule=memcg killed=hog
mkdir /cg/small; echo 50M > /cg/small/memory.max
in_group small /hog 100
rmdir /cg/small
